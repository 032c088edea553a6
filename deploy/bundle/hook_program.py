"""The program `nodeward-oci-hook` of the bundle."""

from nodeward.programs.hook.run import main

if __name__ == "__main__":
    main()
