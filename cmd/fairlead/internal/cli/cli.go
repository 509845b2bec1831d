// Package cli is the command line: one file for each noun, which parses, calls
// the control plane through its client, and hands the answer to package view.
// Results go to the standard output, everything else to the standard error.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/profile"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/pkg/transport"
)

// Env is the world around the program.
type Env struct {
	Args           []string // without the program's name
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	StdinTTY       bool // a person can be asked
	StdoutTTY      bool
	StderrTTY      bool
	Width          int // columns of the standard output; 0 if it is no terminal
	Getenv         func(string) string
	Now            func() time.Time
	Version        string
	Interrupts     <-chan struct{} // one for each Ctrl-C or SIGTERM; the first also ends the context

	// StartServer starts a control plane in this process.
	StartServer func(context.Context, ServerOptions) (Server, error)
}

// ServerOptions say what kind of control plane is started.
type ServerOptions struct {
	Data     string // folder that holds everything
	Listen   string // host:port; port 0 picks a free one
	URL      string // by which runners reach it; "": by where it listens
	Version  string
	Storage  string        // of the state of the runner "local", when it is made: "local" or "http"
	Lease    time.Duration // of jobs
	Grace    time.Duration // of interrupted tools
	NoOutput time.Duration // of tools, before they are taken to hang
	Logger   *slog.Logger

	// TLSCert and TLSKey are files in PEM; "": the server has no TLS.
	TLSCert, TLSKey string

	StackTemplateURL string // of the published template of customers' stacks; "": none
	RunnerImage      string // by digest, that customers' stacks start; "": none
	LoopbackIssuers  bool   // runners may trust OIDC issuers on this machine
	Limits           ServerLimits
}

// ServerLimits are what a server holds for its callers; a field that is zero has its
// default.
type ServerLimits struct {
	Connections        int // open at once
	Rate, Burst        int // requests of one token: a second, and at once after a pause
	AtOnce             int // requests of one token that are being answered, but long polls
	Waits              int // long polls of one token
	WrongRate, WrongAt int // wrong tokens from one address: a second, and at once after a pause
}

// Server is a control plane in this process.
type Server interface {
	URL() string
	// TokenFile is where an administrator's token is, readable by its owner only.
	TokenFile() string
	// EnrolmentTokenFile writes a single-use token for the runner to a file.
	EnrolmentTokenFile(ctx context.Context, runner string) (path string, err error)
	// Wait returns when the server has stopped, with the reason.
	Wait() error
	Close(ctx context.Context) error
}

// Main runs the command and returns the exit code.
func Main(ctx context.Context, env Env) int {
	c := &cli{env: env}
	root := c.root()
	c.finish(root)
	root.SetArgs(env.Args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	c.json = c.json || slices.Contains(env.Args, "--json") // also if the words before it were wrong
	if err == nil {
		return exitOK
	}
	if !c.started { // cobra refused the words before any command of ours ran
		err = usage(fmt.Sprintf("`%s --help` shows how it is used.", cmd.CommandPath()), "%s", tidy(err.Error()))
	}
	f, code := classify(err)
	if f.Detail != "" || f.Title != "" {
		if code == exitInterrupted && env.StderrTTY {
			fmt.Fprintln(env.Stderr) // the terminal has written ^C
		}
		c.printer().Fail(f)
	}
	return code
}

// finish gives every command what it does not say itself. It takes the arguments
// that its line of use has, and a flag is required if its usage says so. Only files
// are completed as files: flags whose value is a FILE or a DIR. And it notes that it
// runs: what fails before is a fault of the words.
func (c *cli) finish(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true // every command has some
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			c.started = true
			return run(cmd, args)
		}
		if cmd.Args == nil {
			cmd.Args = exactly
		}
		if cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if strings.HasSuffix(f.Usage, "(required)") {
			c.must(cmd.MarkFlagRequired(f.Name))
		}
		value, _ := pflag.UnquoteUsage(f)
		_, completed := cmd.GetFlagCompletionFunc(f.Name)
		switch {
		case completed || value == "FILE" || f.Value.Type() == "bool":
		case value == "DIR":
			c.must(cmd.MarkFlagDirname(f.Name))
		default:
			c.must(cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions))
		}
	})
	for _, sub := range cmd.Commands() {
		c.finish(sub)
	}
}

// tidy joins cobra's several lines.
func tidy(message string) string {
	return strings.ReplaceAll(strings.TrimSpace(message), "\n\n", "\n")
}

type cli struct {
	env     Env
	flags   profile.Flags
	json    bool
	started bool // a command of ours runs
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use: "fairlead", Short: "Ship your software into your customers' cloud accounts",
		Long: `Fairlead ships a vendor's software into its customers' cloud accounts, and
nobody ever holds a key to anybody else's account.

An app is a folder with an app.yaml. An install is one app in one customer's
account. A runner beside the customer's resources polls for jobs and runs them.`,
		Example: `  fairlead dev                                  # a control plane and a runner on this machine
  fairlead app apply examples/hello             # publish an app
  fairlead install create acme --app hello      # one app for one customer
  fairlead install deploy acme                  # plan, approve, apply, with live logs
  fairlead install outputs acme --json`,
		Args: cobra.ArbitraryArgs, RunE: unknown,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	pf := root.PersistentFlags()
	pf.BoolVar(&c.json, "json", false, "print the result as one JSON document")
	pf.StringVar(&c.flags.URL, "url", "", "the control plane's `URL`, if not the one you are logged in to")
	pf.StringVar(&c.flags.TokenFile, "token-file", "", "the `FILE` that holds the token, if not that of the login")
	pf.StringVar(&c.flags.CAFile, "ca-file", "", "the `FILE` of what the control plane's certificate is signed by, if this machine does not trust it")
	pf.BoolVar(&c.flags.Plain, "allow-plain-http", false, "send the token without TLS to another machine, where it can be read on the way")
	root.SetUsageTemplate(usageTemplate)
	c.must(root.MarkPersistentFlagFilename("token-file"))
	c.must(root.MarkPersistentFlagFilename("ca-file"))
	c.must(root.RegisterFlagCompletionFunc("url", cobra.NoFileCompletions))

	const local, objects = "local", "objects"
	root.AddGroup(&cobra.Group{ID: local, Title: "Start here:"}, &cobra.Group{ID: objects, Title: "Work with:"})
	for _, cmd := range []*cobra.Command{c.dev(), c.server(), c.login()} {
		cmd.GroupID = local
		root.AddCommand(cmd)
	}
	for _, cmd := range []*cobra.Command{c.app(), c.install(), c.deployment(), c.job(), c.runner(), c.group(), c.variable(), c.webhook(), c.token()} {
		cmd.GroupID = objects
		root.AddCommand(cmd)
	}
	root.AddCommand(c.version(), exitCodesTopic(), environmentTopic())
	return root
}

// must reports a mistake in the definition of the commands.
func (c *cli) must(err error) {
	if err != nil {
		panic(err)
	}
}

// noun returns a command that only holds others.
func noun(use, short, long string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: cobra.ArbitraryArgs, RunE: unknown,
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// unknown is what a command does that only holds others: help, or refuse a
// word that is none of them.
func unknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := fmt.Sprintf("`%s --help` lists what there is.", cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("Did you mean `%s %s`? %s", cmd.CommandPath(), near[0], hint)
	}
	return usage(hint, "%s has no command %q", cmd.CommandPath(), args[0])
}

func (c *cli) outStyle() view.Style { return view.StyleFor(c.env.StdoutTTY, c.env.Getenv) }
func (c *cli) errStyle() view.Style { return view.StyleFor(c.env.StderrTTY, c.env.Getenv) }

func (c *cli) printer() view.Printer {
	if c.json {
		return view.NewJSON(c.env.Stdout, c.env.Stderr)
	}
	return view.NewHuman(c.env.Stdout, c.env.Stderr, c.outStyle(), c.errStyle(), view.Screen{Terminal: c.env.StdoutTTY, Width: c.env.Width}, c.env.Now)
}

func (c *cli) print(d view.Document) error { return c.printer().Print(d) }

// say tells the person something that is no result.
func (c *cli) say(format string, args ...any) {
	fmt.Fprintln(c.env.Stderr, view.Clean(fmt.Sprintf(format, args...)))
}

// client returns a client of the control plane that flags, environment or
// login name.
func (c *cli) client() (*client.Client, error) {
	target, err := profile.Resolve(c.flags, c.env.Getenv)
	if err != nil {
		return nil, err
	}
	return c.clientOf(target, client.Options{})
}

func (c *cli) clientOf(t profile.Target, o client.Options) (*client.Client, error) {
	o.UserAgent, o.PlainHTTP = "fairlead/"+c.env.Version, t.Plain
	var err error
	if o.CA, err = transport.ReadCA(t.CAFile); err != nil {
		return nil, usage("Name a file of certificates in PEM with --ca-file.", "%v", err)
	}
	cl, err := client.New(t.URL, t.Token, o)
	if _, ok := errors.AsType[*transport.PlainError](err); ok {
		return nil, usage("Use https://, with --ca-file if the certificate is your own. On a network that you trust, --allow-plain-http sends the token without TLS.", "%v", err)
	}
	if err != nil {
		return nil, usage("`fairlead help environment` says where the URL comes from.", "%v", err)
	}
	return cl, nil
}

// call returns a RunE that has a client.
func (c *cli) call(run func(ctx context.Context, cl *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		return run(cmd.Context(), cl, args)
	}
}

// shows returns a RunE that prints what run returns, if that is not nil.
func (c *cli) shows(run func(ctx context.Context, cl *client.Client, args []string) (view.Document, error)) func(*cobra.Command, []string) error {
	return c.call(func(ctx context.Context, cl *client.Client, args []string) error {
		d, err := run(ctx, cl, args)
		if err != nil || d == nil {
			return err
		}
		return c.print(d)
	})
}

// one returns a RunE that prints what the call says of its first argument.
func one[T any](c *cli, call func(*client.Client, context.Context, string) (T, error), doc func(T) view.Document) func(*cobra.Command, []string) error {
	return c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
		v, err := call(cl, ctx, args[0])
		return doc(v), err
	})
}

// deletes returns a RunE that deletes what its first argument names.
func (c *cli) deletes(noun string, remove func(*client.Client, context.Context, string) error) func(*cobra.Command, []string) error {
	return c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
		return view.Deleted(noun, args[0]), remove(cl, ctx, args[0])
	})
}

// exactly accepts the arguments that the command's Use line names: as many as
// it has words behind the verb that are no flags.
func exactly(cmd *cobra.Command, args []string) error {
	var wanted []string
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "-") {
			break // a required flag and its value
		}
		wanted = append(wanted, word)
	}
	switch {
	case len(args) < len(wanted):
		return fmt.Errorf("%s is missing", strings.Join(wanted[len(args):], " and "))
	case len(args) > len(wanted):
		return fmt.Errorf("%q is one argument too many", args[len(wanted)])
	}
	return nil
}

// readFile reads a file, or the standard input for "-", of at most limit bytes. what
// says what it holds.
func (c *cli) readFile(name, what string, limit int64) ([]byte, error) {
	r := c.env.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usage("", "the %s cannot be read: %v", what, err)
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, usage("", "the %s cannot be read: %v", what, err)
	}
	if int64(len(data)) > limit {
		return nil, &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodeInputFileTooLarge, Message: fmt.Sprintf("the %s in %s is larger than %d bytes", what, name, limit)}
	}
	return data, nil
}

// writeSecret writes a token that is shown once to a file that only its owner can
// read, or returns the document that prints it. until says how long it is good.
func (c *cli) writeSecret(file, token, until string, doc view.Document) (view.Document, error) {
	if file == "" {
		c.say("Good %s.", until)
		return doc, nil
	}
	if err := safefile.Write(file, []byte(token+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("write the token: %w", err)
	}
	c.say("The token is in %s; it is good %s.", file, until)
	return nil, nil
}

// pairs splits what a flag was given as name=value; form is how the flag calls it.
func pairs(flag, form string, given []string) (map[string]string, error) {
	out := map[string]string{}
	for _, pair := range given {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usage(fmt.Sprintf("Write --%s %s.", flag, form), "--%s %s has no \"=\"", flag, pair)
		}
		out[name] = value
	}
	return out, nil
}
