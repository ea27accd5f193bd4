"""Files of users: tables, folders of images, arrays."""
