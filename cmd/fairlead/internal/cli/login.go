package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/profile"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
)

func (c *cli) login() *cobra.Command {
	return &cobra.Command{
		Use: "login URL", Short: "Store the URL and the token of a control plane",
		Long: `Calls the control plane to verify the token. Then stores the URL and the token in a
file that only you can read.

Give the token with --token-file FILE or in $FAIRLEAD_TOKEN. With --token-file - the
command reads it from the standard input. The token is never printed.
The command also stores the values of --ca-file and --allow-plain-http.`,
		Example: `  fairlead login https://fairlead.example.com --token-file ~/token
  pass fairlead/token | fairlead login https://fairlead.example.com --token-file -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			target := profile.Target{URL: args[0]}
			var err error
			if target.Token, err = c.loginToken(); err != nil {
				return err
			}
			if target, err = profile.Reach(c.flags, c.env.Getenv, target, profile.Stored{}); err != nil {
				return err
			}
			if target.CAFile != "" {
				if target.CAFile, err = filepath.Abs(target.CAFile); err != nil {
					return fmt.Errorf("find the file of trusted certificates: %w", err)
				}
			}
			cl, err := c.clientOf(target, client.Options{})
			if err != nil {
				return err
			}
			return c.storeLogin(cmd.Context(), cl, target)
		},
	}
}

func (c *cli) loginToken() (string, error) {
	switch name := cmp.Or(c.flags.TokenFile, c.env.Getenv(profile.EnvTokenFile)); {
	case name == "-":
		if c.env.StdinTTY {
			return "", usage("Pipe it in, or name a file: the terminal would show the typed token.", "a token is not read from a terminal")
		}
		return profile.ReadToken(c.env.Stdin, "the standard input")
	case c.flags.TokenFile == "" && c.env.Getenv(profile.EnvToken) != "":
		return c.env.Getenv(profile.EnvToken), nil
	case name != "":
		f, err := os.Open(name)
		if err != nil {
			return "", usage("Name a file that contains only the token.", "the token file cannot be read: %v", err)
		}
		defer f.Close()
		return profile.ReadToken(f, name)
	}
	return "", usage("Add --token-file FILE, or --token-file - to read it from the standard input.", "no token is given")
}

func (c *cli) storeLogin(ctx context.Context, cl *client.Client, t profile.Target) error {
	meta, err := cl.Meta(ctx)
	if err != nil {
		return err
	}
	if _, err := cl.ListApps(ctx, client.ListOptions{Limit: 1}); err != nil { // the metadata needs no token
		return err
	}
	path, err := profile.Save(c.env.Getenv, profile.Stored{URL: cl.URL(), Token: cl.Token(), CAFile: t.CAFile, Plain: t.Plain})
	if err != nil {
		return err
	}
	return c.print(view.Login{URL: cl.URL(), Meta: meta, Config: path})
}

func (c *cli) version() *cobra.Command {
	var local bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version of this program, and of the control plane",
		Long: `Prints the version of this program, the version of Go, and the platform. If you are
logged in, the command also prints the version of the control plane.`,
		Example: "  fairlead version\n  fairlead version --client",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := view.Version{Version: c.env.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if !local {
				c.askVersion(cmd.Context(), &v)
			}
			return c.print(v)
		},
	}
	cmd.Flags().BoolVar(&local, "client", false, "do not call the control plane")
	return cmd
}

// askVersion adds the version of the control plane, if the user is logged in. It leaves
// the version out if the control plane does not answer soon: users run this command when
// something is broken.
func (c *cli) askVersion(ctx context.Context, v *view.Version) {
	target, err := profile.Resolve(c.flags, c.env.Getenv)
	if err != nil {
		if !isNotLoggedIn(err) {
			c.say("%v", err)
		}
		return
	}
	cl, err := c.clientOf(target, client.Options{Retries: -1})
	if err != nil {
		c.say("%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	meta, err := cl.Meta(ctx)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = errors.New("no answer within 3 s")
		}
		c.say("The control plane at %s was not reached: %v", cl.URL(), err)
		return
	}
	v.URL, v.ControlPlane = cl.URL(), meta.Version
}
