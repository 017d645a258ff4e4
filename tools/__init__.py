"""Programs for the people who keep this repository; nothing here is part of the package."""
