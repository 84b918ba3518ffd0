"""Provider ``vagrant``: machines that Vagrant makes."""
