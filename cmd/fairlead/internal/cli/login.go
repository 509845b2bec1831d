package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/oidclogin"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/profile"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// loginFlags choose how a person logs in.
type loginFlags struct {
	issuer, org string
	link        string // file of a login link
	account     string // service account as which a program logs in
	device      bool
}

func (c *cli) login() *cobra.Command {
	var f loginFlags
	cmd := &cobra.Command{
		Use: "login [URL]", Short: "Log in to a control plane",
		Long: `Logs you in to a control plane, and stores its URL and your token in a file that only
you can read. Without a URL, the command uses the control plane of the last login.

The command opens a browser, in which you log in at the issuer of the control plane. With
--device it prints a URL and a code instead: open the URL on any device and type the code.
The token is valid for twelve hours. A person of a customer can also log in with a login
link, once: --link-file FILE. This token is valid for thirty days.

A program such as a CI job logs in as a service account, with a token of its platform:
--service-account NAME, and the file of the token in --token-file or in
$FAIRLEAD_OIDC_TOKEN_FILE. The platform's token is accepted once. The login is valid for
an hour. 'fairlead service-account create' names whose tokens are accepted.

Other programs log in with an API token: give it with --token-file FILE or in $FAIRLEAD_TOKEN.
With --token-file - the command reads it from the standard input. The command then calls
the control plane to verify the token. A token is never printed.
The command also stores the values of --ca-file and --allow-plain-http.`,
		Example: `  fairlead login https://fairlead.example.com
  fairlead login https://fairlead.example.com --device
  fairlead login https://fairlead.example.com --link-file link
  fairlead login https://fairlead.example.com --token-file ~/token
  fairlead login https://fairlead.example.com --service-account ci --token-file oidc-token
  pass fairlead/token | fairlead login https://fairlead.example.com --token-file -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := c.loginTarget(args)
			if err != nil {
				return err
			}
			if c.tokenGiven() && f.account == "" {
				if target.Token, err = c.loginToken(); err != nil {
					return err
				}
			}
			cl, err := c.clientOf(target, client.Options{})
			if err != nil {
				return err
			}
			if f.account != "" {
				l, err := c.logInAccount(cmd.Context(), cl, f)
				if err != nil {
					return err
				}
				return c.storeLogin(cmd.Context(), cl.WithToken(l.Token), target)
			}
			if c.tokenGiven() {
				return c.storeLogin(cmd.Context(), cl, target)
			}
			l, err := c.logIn(cmd.Context(), cl, f)
			if err != nil {
				return err
			}
			target.Token = l.Token
			return c.storeLogin(cmd.Context(), cl.WithToken(l.Token), target)
		},
	}
	cmd.Flags().BoolVar(&f.device, "device", false, "log in on another device: print a URL and a code")
	cmd.Flags().StringVar(&f.issuer, "issuer", "", "log in at the issuer with this `NAME`, if the control plane has several")
	cmd.Flags().StringVar(&f.link, "link-file", "", "log in with the login link in this `FILE`")
	cmd.Flags().StringVar(&f.account, "service-account", "", "log in as the service account with this `NAME`, with a token of the platform")
	cmd.Flags().StringVar(&f.org, "org", "", "log in to this `ORG`, if several have invited you, or the service account is not in the org default")
	for _, name := range []string{"device", "issuer", "link-file"} {
		cmd.MarkFlagsMutuallyExclusive("service-account", name)
	}
	return cmd
}

// tokenGiven reports whether a token is given by a flag or by the environment.
func (c *cli) tokenGiven() bool {
	return c.flags.TokenFile != "" || c.env.Getenv(profile.EnvToken) != "" || c.env.Getenv(profile.EnvTokenFile) != ""
}

// loginTarget returns the control plane of a login, without a token.
func (c *cli) loginTarget(args []string) (profile.Target, error) {
	stored, err := profile.Load(c.env.Getenv)
	if err != nil && len(args) == 0 {
		return profile.Target{}, err
	}
	target := profile.Target{URL: cmp.Or(strings.Join(args, ""), c.flags.URL, c.env.Getenv(profile.EnvURL), stored.URL)}
	if target.URL == "" {
		return target, usage("Name its URL: `fairlead login URL`.", "no control plane is known")
	}
	if len(args) > 0 {
		stored = profile.Stored{}
	}
	if target, err = profile.Reach(c.flags, c.env.Getenv, target, stored); err != nil {
		return target, err
	}
	if target.CAFile != "" {
		if target.CAFile, err = filepath.Abs(target.CAFile); err != nil {
			return target, fmt.Errorf("find the file of trusted certificates: %w", err)
		}
	}
	return target, nil
}

// logIn lets the person log in at an issuer of the control plane, or with a login link.
func (c *cli) logIn(ctx context.Context, cl *client.Client, f loginFlags) (wire.Login, error) {
	if f.link != "" {
		file, err := os.Open(f.link)
		if err != nil {
			return wire.Login{}, usage("Name a file that contains only the login link.", "the login link cannot be read: %v", err)
		}
		defer file.Close()
		link, err := profile.ReadToken(file, f.link)
		if err != nil {
			return wire.Login{}, err
		}
		return cl.UseLoginLink(ctx, wire.UseLinkRequest{Token: link})
	}
	begun, err := cl.BeginLogin(ctx)
	if err != nil {
		return wire.Login{}, err
	}
	at, err := chooseIssuer(begun.Issuers, f.issuer)
	if err != nil {
		return wire.Login{}, err
	}
	issuer := oidclogin.Issuer{URL: at.Issuer, ClientID: at.ClientID, ClientSecret: at.ClientSecret}
	in := wire.LogInRequest{Issuer: at.Name, Org: f.org}
	if f.device {
		in.IDToken, err = oidclogin.Device(ctx, issuer, func(code oidclogin.Code) {
			c.say("Open %s and type the code %s", code.URL, code.Code)
			if code.Complete != "" {
				c.say("This URL has the code in it: %s", code.Complete)
			}
		})
	} else {
		in.Nonce = begun.Nonce
		in.IDToken, err = oidclogin.Browser(ctx, issuer, begun.Nonce, func(url string) {
			c.say("Log in with the browser. If none opens, open this URL in a browser on this machine, or use --device:\n  %s", url)
			if err := c.env.OpenBrowser(url); err != nil {
				c.say("No browser was opened: %v", err)
			}
		})
	}
	if err != nil {
		return wire.Login{}, err
	}
	l, err := cl.LogIn(ctx, in)
	if f, ok := errors.AsType[*client.Error](err); ok && f.Code() == string(fairlead.CodeOrgAmbiguous) {
		return l, usage("Add --org ORG.", "%s", f.Problem.Detail)
	}
	return l, err
}

// chooseIssuer returns the issuer with the name, or the only one.
func chooseIssuer(issuers []wire.LoginProvider, name string) (wire.LoginProvider, error) {
	var names []string
	for _, i := range issuers {
		if i.Name == name || name == "" && len(issuers) == 1 {
			return i, nil
		}
		names = append(names, i.Name)
	}
	switch {
	case len(issuers) == 0:
		return wire.LoginProvider{}, usage("Log in with an API token: add --token-file FILE, or --token-file - to read it from the standard input. An operator sets an issuer with `fairlead issuer set`.",
			"no token is given, and the control plane has no issuer at which people log in")
	case name == "":
		return wire.LoginProvider{}, usage("Add --issuer NAME.", "the control plane has several issuers: %s", strings.Join(names, ", "))
	}
	return wire.LoginProvider{}, usage("", "the control plane has no issuer %q; its issuers are %s", name, strings.Join(names, ", "))
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
	default:
		f, err := os.Open(name)
		if err != nil {
			return "", usage("Name a file that contains only the token.", "the token file cannot be read: %v", err)
		}
		defer f.Close()
		return profile.ReadToken(f, name)
	}
}

func (c *cli) storeLogin(ctx context.Context, cl *client.Client, t profile.Target) error {
	meta, err := cl.Meta(ctx)
	if err != nil {
		return err
	}
	who, err := cl.Caller(ctx) // the metadata needs no token
	if err != nil {
		return err
	}
	path, err := profile.Save(c.env.Getenv, profile.Stored{URL: cl.URL(), Token: cl.Token(), CAFile: t.CAFile, Plain: t.Plain})
	if err != nil {
		return err
	}
	return c.print(view.Login{URL: cl.URL(), Meta: meta, Config: path, Caller: who})
}

func (c *cli) logout() *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "Log out, and delete the stored token",
		Long: `Ends the login at the control plane, so that its token is refused from now on, and
deletes the token from the file in which 'fairlead login' stored it. An API token stays
valid: 'fairlead token revoke' ends it.`,
		Example: "  fairlead logout",
		RunE: func(cmd *cobra.Command, _ []string) error {
			stored, err := profile.Load(c.env.Getenv)
			if err != nil {
				return err
			}
			if stored.Token == "" && stored.TokenFile == "" {
				return usage("", "no login is stored")
			}
			if stored.Token != "" {
				target, err := profile.Reach(c.flags, c.env.Getenv, profile.Target{URL: stored.URL, Token: stored.Token}, stored)
				if err != nil {
					return err
				}
				cl, err := c.clientOf(target, client.Options{})
				if err != nil {
					return err
				}
				err = cl.LogOut(cmd.Context())
				refused, ok := errors.AsType[*client.Error](err)
				if over := ok && (refused.Code() == string(fairlead.CodeNotLogin) || refused.Code() == string(fairlead.CodeUnauthenticated)); err != nil && !over {
					return err
				}
			}
			path, err := profile.Save(c.env.Getenv, profile.Stored{URL: stored.URL, CAFile: stored.CAFile, Plain: stored.Plain})
			if err != nil {
				return err
			}
			return c.print(view.Done(map[string]string{"url": stored.URL, "config": path}, "Logged out of %s", stored.URL))
		},
	}
}

func (c *cli) whoami() *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Show who you are, and what you may do",
		Long:    "Shows the token or the user as which you call the control plane, the org, the roles, and\nwhen the token expires.",
		Example: "  fairlead whoami",
		RunE: c.shows(func(ctx context.Context, cl *client.Client, _ []string) (view.Document, error) {
			who, err := cl.Caller(ctx)
			return view.Caller(who), err
		}),
	}
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
