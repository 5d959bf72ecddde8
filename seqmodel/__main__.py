"""`python -m seqmodel` is `seqmodel`."""

from seqmodel.cli.main import main

main()
