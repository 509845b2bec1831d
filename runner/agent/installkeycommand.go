package agent

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/runner/internal/installseed"
)

const installKeyUsage = `usage: fairlead-runner install-key show INSTALL_ID | rotate   [--data FOLDER]

  show    print the public key of an install, and the fingerprint by which the
          vendor compares it
  rotate  put a new seed above the earlier ones; they still open earlier values

Both use the file install-key.seed in the agent's data folder.
`

// InstallKey runs `fairlead-runner install-key`, a command of the customer, and returns its exit code. It never prints a seed.
func InstallKey(args []string, o Options) int {
	out := o.Stdout
	if out == nil {
		out = io.Discard
	}
	if len(args) == 0 {
		fmt.Fprint(o.Stderr, installKeyUsage)
		return exitUsage
	}
	verb, install, rest := args[0], "", args[1:]
	if verb == "show" && len(rest) > 0 {
		install, rest = rest[0], rest[1:]
	}
	if verb != "rotate" && (verb != "show" || install == "") {
		fmt.Fprint(o.Stderr, installKeyUsage)
		return exitUsage
	}
	fs := flag.NewFlagSet("install-key "+verb, flag.ContinueOnError)
	fs.SetOutput(o.Stderr)
	var cfg config.InstallKey
	switch err := config.Load(&cfg, fs, rest, o.Environ); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(o.Stderr, err)
		return exitUsage
	}
	if err := installKey(out, verb, fairlead.InstallID(install), cfg.Data); err != nil {
		fmt.Fprintln(o.Stderr, err)
		return exitError
	}
	return exitOK
}

func installKey(out io.Writer, verb string, install fairlead.InstallID, data string) error {
	if verb == "rotate" {
		if err := installseed.Add(data, rand.Reader); err != nil {
			return err
		}
		fmt.Fprintf(out, "Added a seed to %s. Copy the file to each agent of the runner, and back it up. The next job of each install reports its new key.\n", installseed.Path(data))
		return nil
	}
	seeds, err := installseed.Read(data)
	if err != nil {
		return err
	}
	if seeds == "" {
		return fmt.Errorf("there is no file %s: the agent has no seed of its own", installseed.Path(data))
	}
	ring, err := installkey.NewRing(seeds, install)
	if err != nil {
		return err
	}
	key := ring.Current().Public()
	fmt.Fprintf(out, "%s\n%s\n", key, key.Fingerprint())
	return nil
}
