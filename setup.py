"""The wheel carries configs/ and scripts/ inside the package, so that ``wawa`` works anywhere."""

from setuptools import find_namespace_packages, setup

BESIDE = {"wawa_transformer.configs": "configs", "wawa_transformer.scripts": "scripts"}

setup(
    packages=[*find_namespace_packages(include=["wawa_transformer*"]), *BESIDE],
    package_dir=BESIDE,
    package_data={
        "": ["templates/*.jinja", "*.html", "walkthrough.txt", "chinese.yaml", "py.typed"],
        "wawa_transformer.configs": ["**/*.yaml"],
    },
)
