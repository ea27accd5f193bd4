"""Transport over a folder that all parties reach, for the guide on integrations."""

import threading
import time
from pathlib import Path

from fallow.transport.address import LOCALLY
from fallow.transport.factory import TransportFactory

SHARED = Path("shared")


def write(file, content):
    part = file.with_suffix(".part")
    part.write_bytes(content)
    part.replace(file)  # nobody reads half of a message


class SharedFolder(TransportFactory):
    """Messages as files."""

    title = "A shared folder"
    listen = LOCALLY  # addresses are not used
    nearby = LOCALLY

    @staticmethod
    def open(end, notify):
        return CoordinatorFiles({site: SHARED / end.study / site for site in end.sites})

    @staticmethod
    def connect(end, handle):
        return SiteFiles(SHARED / end.study / end.name, handle)


class CoordinatorFiles:
    """The coordinator's end."""

    def __init__(self, folders):
        self.folders = folders

    def start(self):
        for folder in self.folders.values():
            folder.mkdir(parents=True, exist_ok=True)

    def limit(self, bound):
        self.bound = bound  # largest reply of a site in bytes

    def revoke(self, site):
        self.folders.pop(site, None)

    def send(self, messages):  # a new message replaces the last one
        for site, message in messages.items():
            write(self.folders[site] / "instruction", message)

    def receive(self, seconds):
        end = time.monotonic() + seconds
        while True:
            replies = []
            for site, folder in self.folders.items():
                file = folder / "reply"
                if file.exists() and file.stat().st_size <= self.bound(site):
                    replies.append((site, file.read_bytes()))
                    file.unlink()
            if replies or time.monotonic() >= end:
                return replies
            time.sleep(0.02)

    def online(self):
        return {
            site for site, folder in self.folders.items() if (folder / "online").exists()
        }

    def close(self):
        pass


class SiteFiles:
    """A site's end."""

    problem = None  # the connection error, for the site's log

    def __init__(self, folder, handle):
        self.folder = folder
        self.handle = handle

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "online").touch()
        self.is_running = True
        threading.Thread(target=self.reply, daemon=True).start()

    def reply(self):
        last = None  # after a restart, the last reply is sent again
        while self.is_running:
            file = self.folder / "instruction"
            if file.exists() and (message := file.read_bytes()) != last:
                write(self.folder / "reply", self.handle(message))
                last = message
            time.sleep(0.02)

    def stop(self):
        self.is_running = False
        (self.folder / "online").unlink()
