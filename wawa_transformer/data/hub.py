"""Datasets of the hub, and folders, as the library ``datasets`` finds and reads them."""

import csv
import glob
import itertools
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import datasets
from datasets import BuilderConfig, Dataset, DatasetBuilder, DatasetDict

from wawa_transformer.common.messages import UserError, first_line, warn
from wawa_transformer.data.files import (
    ENTRIES,
    TABLES,
    Columns,
    names_of,
    pairs_of_entries,
    read_pairs,
    suffix_of,
)

FORMATS = {*TABLES, *ENTRIES} - {".txt"}  # of which the library makes one column
# What a file's name begins with that is of another split than train, in small letters.
OTHERS = re.compile(r"(?i)(test|testing|eval|evaluation|validation|valid|val|dev)(?![a-z])")


def pairs_of(
    name: str, config: str | None, columns: Columns, wanted: Collection[str]
) -> dict[str, Iterator[tuple[str, str]]]:
    """Read the pairs of each split of a dataset, or of a local folder.

    It has none if it lacks all splits that are ``wanted``.

    Raises:
        UserError: the library cannot read it, or it has no training split, which is wanted.
    """
    where, builder = f"task.hub={name}", None
    try:
        splits, builder = find(name, config)
        if builder and not (Path(name).is_dir() and has_own_files(builder)):
            splits = rows_of(builder, names_of(columns))
        if "train" in {*wanted} - {*splits}:
            raise LookupError("it has no split train")
    except Exception as error:  # the library raises dozens of classes
        said = first_line(error.__cause__ or error)[:300]  # it may list a hundred suffixes
        if builder and " object at 0x" in said:
            said = f"the library reads no {builder.name} files"
        raise UserError(
            f"{where} cannot be used ({said}); name a dataset with a split train, one of several "
            f"configurations in task.hub_config, or a file in task.source."
        ) from None
    if not {*wanted} & {*splits}:
        return {}
    if builder and (rest := unread(Path(name), builder)):
        warn(f"{where}: of its files, {', '.join(rest)[:200]} are not read")
    files = builder.config.data_files or {} if builder and Path(name).is_dir() else {}
    for split, paths in files.items():
        if len(paths) > 1:  # a copy or an older text may have a split's name, too
            said = ", ".join(sorted(Path(path).name for path in paths))[:200]
            warn(f"{where}: {len(paths)} files are read as the split {split}: {said}")
    for path in files_of(builder) if builder else []:
        if zipfile.is_zipfile(path) and len(inside := members(path)) > 1:
            said = ", ".join(inside)[:200]
            warn(f"{where}: all files in {path.name} are read as one split: {said}")
    return {
        split: pairs_of_entries(dicts_of(content), where, columns, f"{split} row")
        if isinstance(content, Dataset)
        else itertools.chain.from_iterable(
            read_pairs({"task.hub": Path(path)}, columns) for path in content
        )
        for split, content in splits.items()
    }


def find(name: str, config: str | None) -> tuple[Mapping[str, Any], DatasetBuilder | None]:
    """Find the splits of a dataset, and what builds them if the library did not save them."""
    here = Path(name).resolve()
    if here.is_file():
        raise LookupError("it is a file")
    if any((here / each).is_file() for each in ("state.json", "dataset_dict.json")):
        saved = datasets.load_from_disk(name)
        return saved if isinstance(saved, DatasetDict) else {"train": saved}, None
    if here.is_dir() and glob.escape(str(here)) != str(here):
        raise LookupError(
            f"the library of datasets takes [ ] * ? in {here} for a pattern; rename the folder"
        )
    try:
        builder = datasets.load_dataset_builder(name, config)
    except ValueError:
        names = datasets.get_dataset_config_names(name)
        if config in names or (config is None and len(names) < 2):
            raise
        named = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if names[10:] else "")
        raise LookupError(
            f"task.hub_config={config or 'null'} is none of its configurations {named}"
        ) from None
    splits = builder.config.data_files or builder.info.splits or {}
    files = builder.config.data_files or {}
    for path in map(Path, files.get("train", ()) if here.is_dir() else ()):
        if (word := OTHERS.match(path.name)) and not word[0].islower():
            raise LookupError(
                f"the library of datasets knows splits by names in small letters, and takes "
                f"{path.name} for training; rename it {path.name.lower()}"
            )
    return {str(split): content for split, content in splits.items()}, builder


def files_of(builder: DatasetBuilder) -> list[Path]:
    """List the files that the library reads, of every split."""
    return [Path(path) for paths in (builder.config.data_files or {}).values() for path in paths]


def members(archive: Path) -> list[str]:
    """List the files of a zip archive that the library reads: none that is hidden."""
    with zipfile.ZipFile(archive) as file:
        return [name for name in file.namelist() if not re.search(r"(^|/)(\.|__)|/$", name)]


def has_own_files(builder: DatasetBuilder) -> bool:
    """True if files of a folder can be read without what the library knows of them."""
    formats = {suffix_of(path.name) for path in files_of(builder)}
    # A README may set an encoding or another separator, which the library knows.
    usual, between = vars(type(builder.config)()), "\t" if ".tsv" in formats else ","
    told = {key for key, each in vars(builder.config).items() if each not in (usual[key], between)}
    return bool(formats) and formats <= FORMATS and told <= {*vars(BuilderConfig())}


def unread(folder: Path, builder: DatasetBuilder) -> list[str]:
    """List a folder's files of data that the library leaves out: it reads one format."""
    read = {path.resolve() for path in files_of(builder)}
    files = sorted(path for path in folder.rglob("[!.]*") if suffix_of(path.name) in FORMATS)
    return [str(path.relative_to(folder)) for path in files if path.resolve() not in read]


def rows_of(builder: DatasetBuilder, names: list[str]) -> dict[str, Dataset]:
    """Let the library read the splits of a dataset, of which ``names`` are the columns."""
    if builder.name == "csv":  # in which NA and 007 are texts
        builder.config.na_filter = False
        builder.config.converters = dict.fromkeys(names, str)
        # In a table with tabs a quote is a character.
        if builder.config.sep == "\t" and ".csv" not in str(builder.config.data_files):
            builder.config.quoting = csv.QUOTE_NONE
    # Only downloads are cached: a changed file may have its old size and time.
    builder.download_and_prepare(download_mode="reuse_cache_if_exists")
    loaded = builder.as_dataset()
    # pandas takes the first columns for its index where rows have more than the header, and calls a
    # second column en en.1.
    odd = {f"{name}.1": f"it has the column {name} twice" for name in names}
    odd["__index_level_0__"] = "its rows have more columns than its header"
    columns = {name for part in loaded.values() for name in part.column_names}
    if builder.name == "csv" and (said := [odd[name] for name in odd if name in columns]):
        raise LookupError(said[0])
    return loaded


def dicts_of(split: Dataset) -> Iterator[dict[str, Any]]:
    """Yield the rows of a dataset."""
    if "Json(" in str(split.features):  # a column with values of several types
        yield from split.with_format(None)
        return
    for table in split.with_format("arrow").iter(100):
        yield from table.to_pylist()
