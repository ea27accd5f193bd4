"""
Four hospitals on one machine, with people who label
====================================================

A coordinator and four sites that talk over HTTPS, with keys, certificates and signatures of their own,
as they would from four buildings.  Here they share one machine and one notebook.  It needs
``pip install 'fallow[deploy]'``; :doc:`/deployment` tells the same for real machines.
"""

# %%
# Each hospital has a file of rows without labels and a small one of labeled rows to test on.
# ``answers`` is what its people know; nothing but a person's answer, further down, reads it.
import shlex
import shutil
import socket
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

import pandas as pd
from sklearn.datasets import load_breast_cancer

home = Path(tempfile.mkdtemp(prefix="hospitals-"))
names = ["basel", "bern", "chur", "zug"]
found = load_breast_cancer(as_frame=True)
table = found.data.iloc[:, :10].rename(columns=lambda name: name.replace(" ", "_"))
table["diagnosis"] = found.target.map({0: "malignant", 1: "benign"})
table = table.sample(frac=1, random_state=0)  # in another order
table.insert(0, "id", [f"patient-{number:03d}" for number in range(len(table))])
answers = dict(zip(table["id"], table["diagnosis"], strict=True))
for at, name in enumerate(names):
    rows = table.iloc[at::4]
    rows.iloc[:40].to_csv(home / f"{name}-test.csv", index=False)
    rows.iloc[40:].assign(diagnosis="").to_csv(home / f"{name}.csv", index=False)
rows.iloc[:20].drop(columns="id").to_csv(home / "example.csv", index=False)


# %%
# What follows is typed in a terminal, each line on the machine of its party.  ``fallow`` does here what
# the command of that name does there.
def fallow(line):
    """Do what a command line does."""
    from fallow.cli.app import app

    app(shlex.split(line.replace("HOME", str(home))), standalone_mode=False)


# %%
# **The agreement.**  The coordinator writes down what will be computed, shows what rows look like, and
# gets a file ``study.toml``, which everybody is sent and reads.
(home / "settings.toml").write_text(
    """
strategy = "margin"
training = "closed-form"
encoder = "fourier:features=128"
initial = 8       # first labels at each hospital
per_cycle = 5     # and in each cycle
cycles = 1

[privacy]
secure_sum = true # the coordinator sees totals of all hospitals, and no hospital's part
bound = 1e9
"""
)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]  # that nobody uses
fallow(
    f"coordinate init HOME/office --recipe HOME/settings.toml --sites {','.join(names)} "
    "--example HOME/example.csv --label diagnosis --link https "
    f"--host 127.0.0.1 --address 127.0.0.1:{port} --quiet"
)
print("\n".join((home / "office" / "study.toml").read_text().splitlines()[:25]))

# %%
# **The sites join.**  Each has the digest of the study read out by telephone, checks its own rows and
# makes keys.  Its ``join.json`` goes back to the coordinator, who admits it.
from fallow.federation.study_file import read_agreement

digest = read_agreement(home / "office" / "study.toml").digest
for name in names:
    fallow(
        f"site init HOME/{name} --study HOME/office/study.toml --name {name} "
        f"--data HOME/{name}.csv --test HOME/{name}-test.csv "
        f"--address 127.0.0.1:{port} --digest {digest} --quiet"
    )
fallow(
    "coordinate admit HOME/office " + " ".join(f"HOME/{name}/join.json" for name in names)
)

# %%
# **Everybody starts**: ``fallow site start basel`` in four buildings and ``fallow coordinate start
# office`` in a fifth.  In one notebook each is a thread.
from fallow.federation.coordinator.folder import CoordinatorFolder
from fallow.federation.coordinator.program import Program
from fallow.federation.links.table import open_link
from fallow.federation.site.folder import SiteFolder
from fallow.federation.site.serve import serve

over = Event()
office = CoordinatorFolder.open(home / "office")


def start_site(name):
    """What ``fallow site start`` does."""
    serve(SiteFolder.open(home / name), over, say=lambda event: None)


def start_coordinator():
    """What ``fallow coordinate start`` does; it looks every two seconds whether people are done."""
    link = open_link(office, lambda event: None)
    try:
        Program(
            office.path, office.agreement, link, office.keys, poll=2, limit=link.limit
        ).go(link.start)
    finally:
        link.close()


sites = [Thread(target=start_site, args=[name]) for name in names]
coordinator = Thread(target=start_coordinator)
for party in [*sites, coordinator]:
    party.start()


# %%
# **People label.**  Usually on a page: ``fallow label basel`` opens it in the browser, with a key for
# each class.  With another tool it goes by files: the open questions are written to a table,
# somebody fills in the column ``label``, and the table is taken back.
def label(name):
    """One person's round: export, fill in, import."""
    file = home / f"{name}-open.csv"
    fallow(f"site export HOME/{name} {file} --quiet")
    asked = pd.read_csv(file, dtype=str)
    asked["label"] = asked["id"].map(answers)
    asked.to_csv(file, index=False)
    if len(asked):
        fallow(f"site import HOME/{name} {file} --who {name}-doctor")
    return asked


seen = {name: pd.DataFrame() for name in names}
while coordinator.is_alive():
    for name in names:
        if (home / name / "ledger.sqlite").exists():
            asked = label(name)
            if len(asked):
                seen[name] = asked
    time.sleep(2)
for party in sites:
    over.set()
    party.join()

# %%
# The last rows that Basel's people were asked for, as they saw them: those about which the model was
# least sure.
seen["basel"][["id", "feature:mean_radius", "feature:mean_texture", "label"]]

# %%
# **What came out**: the mean accuracy of the common model on the hospitals' test rows, before and after
# the second round of labels.  ``office/report.html`` is the page of it.
[records] = (home / "office" / "cells").rglob("records.jsonl")
pd.read_json(records, lines=True)[["cycle", "labeled", "accuracy", "balanced_accuracy"]]

# %%
# **What left Basel**, by its own count.  Rows, labels of single rows and names of people never do.
fallow("site status HOME/basel")

# %%
# Each hospital has the model and predicts with it.
fallow("predict HOME/basel HOME/basel-test.csv --out HOME/predicted.csv --quiet")
pd.read_csv(home / "predicted.csv").head()

# %%
# All of it was in one folder; without this line it stays to be looked at.
shutil.rmtree(home)
