"""Our own studies: closed-form training, personalized active learning, pivotal samples."""
