"""Run folders of small pretrained models, in `models/`. nextword opens them by their names, such as `starter/bert`."""
