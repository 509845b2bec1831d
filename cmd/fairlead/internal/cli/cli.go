// Package cli implements the command line. Each noun has one file. It parses the
// arguments, calls the control plane through its client, and passes the answer to
// package view. Results go to the standard output, everything else to the standard
// error.
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
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/profile"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/approval"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/pkg/transport"
	"github.com/fairlead/fairlead/runner/ledger"
)

// Env holds what the program gets from its process: arguments, streams, terminal,
// environment variables and clock. Tests set their own.
type Env struct {
	Args           []string // without the name of the program
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	StdinTTY       bool // a person can answer questions
	StdoutTTY      bool
	StderrTTY      bool
	Width          int // columns of the standard output; 0 if it is not a terminal
	Getenv         func(string) string
	Now            func() time.Time
	Version        string
	Interrupts     <-chan struct{} // the first Ctrl-C or SIGTERM ends the context; each later signal sends a value here

	// StartServer starts a control plane in this process.
	StartServer func(context.Context, ServerOptions) (Server, error)
	// AfterRestore makes the restored data folder or table of a control plane safe to serve.
	AfterRestore func(context.Context, RestoreOptions) (AfterRestore, error)
	// Replay replays the dead letters of a control plane on AWS. With an error, the result
	// has the messages before it.
	Replay func(context.Context, ReplayOptions) (Replayed, error)
	// OpenBrowser opens a URL in the person's browser.
	OpenBrowser func(url string) error
	// KMSKey opens a signing key in AWS KMS by its ARN.
	KMSKey func(ctx context.Context, arn string) (approval.Signer, error)
	// BucketLedger opens a customer's ledger in a bucket; see places.Opener.
	BucketLedger func(ctx context.Context, at runnerspec.Ledger, region string) (ledger.Ledger, error)
	// Whole runs the command in the program that has all of the functions above, in place of this process. It returns only an error.
	// nil: this program has them, or there is no such program.
	Whole func() error
}

// lacks is the result of a command that needs a part which this program does not have.
func (c *cli) lacks(what string) error {
	if c.env.Whole == nil {
		return usage("", "this build %s", what)
	}
	return &failure{code: exitFailed, problem: local("program-missing", "A program is missing", fmt.Sprintf("this command needs another program: %v", c.env.Whole()),
		"Put the programs fairlead and fairlead-server of one release into the same folder.")}
}

// ServerOptions configure the control plane that StartServer starts.
type ServerOptions struct {
	Data     string // the data folder
	Listen   string // host:port; port 0 selects a free port
	URL      string // the URL that runners use; "": the address that it listens on
	Version  string
	Storage  string        // state storage of the runner "local" when it is created: "local" or "http"
	Builds   bool          // the runner "local" builds apps when it is created
	Lease    time.Duration // lease of a job
	Grace    time.Duration // time that an interrupted tool has to save its state
	NoOutput time.Duration // no-output timeout of a tool
	Logger   *slog.Logger

	// TLSCert and TLSKey are PEM files; "": the server does not use TLS.
	TLSCert, TLSKey string

	StackTemplateURL string // URL of the published template of customers' stacks; "": none
	RunnerImage      string // image, with digest, that customers' stacks start; "": none
	Registry         string // path of the program that serves the registry of images; "": the program fairlead-registry beside this one
	FirstLogin       bool   // the token of the first start expires
	LoopbackIssuers  bool   // runners may trust OIDC issuers on this machine
	Limits           ServerLimits

	Checkpoints time.Duration // time between checkpoints of the audit
}

// ServerLimits bound what callers can use of a server. A zero field means the default.
type ServerLimits struct {
	Connections          int // open connections
	Rate, Burst          int // requests of one token: per second, and as a burst after a pause
	AtOnce               int // concurrent requests of one token, without long polls
	Waits                int // concurrent long polls of one token
	OrgRate, OrgBurst    int // requests of the tokens and logins of one org: per second, and as a burst after a pause
	OrgAtOnce            int // concurrent requests of one org, without long polls
	WrongRate, WrongAt   int // wrong tokens from one address: per second, and as a burst after a pause
	LogPerHour, LogBurst int // MiB of log of one runner: per hour, and as a burst after a pause
	Quotas               fairlead.Quotas
}

// Server is a control plane that runs in this process.
type Server interface {
	URL() string
	// TokenFile returns the path of the administrator's token. Only the owner of the
	// file can read it.
	TokenFile() string
	// EnrolmentTokenFile writes a single-use token for the runner to a file.
	EnrolmentTokenFile(ctx context.Context, runner string) (path string, err error)
	// Wait returns the reason when the server has stopped.
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
	c.json = c.json || slices.Contains(env.Args, "--json") // cobra does not parse --json after a wrong argument
	if err == nil {
		return exitOK
	}
	if !c.started { // cobra refused the arguments, so no command ran
		err = usage(fmt.Sprintf("`%s --help` shows its usage.", cmd.CommandPath()), "%s", tidy(err.Error()))
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

// finish sets the defaults of a command and of its subcommands. The command accepts
// the arguments of its Use line. A flag whose usage ends in "(required)" is required.
// Only flags with a FILE or DIR value complete file names. A command that runs sets
// c.started. If c.started is not set, an error is about a wrong argument.
func (c *cli) finish(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true // "[flags]" would be in every Use line
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

// tidy removes the empty lines of an error of cobra.
func tidy(message string) string {
	return strings.ReplaceAll(strings.TrimSpace(message), "\n\n", "\n")
}

type cli struct {
	env     Env
	flags   profile.Flags
	json    bool
	started bool // a command runs: its arguments are valid
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use: "fairlead", Short: "Ship your software into your customers' cloud accounts",
		Long: `Fairlead ships a vendor's software into the cloud accounts of the vendor's
customers. No company holds a key to another company's account.

An app is a folder with the file app.yaml. An install is one app in one customer's
account. The vendor operates a control plane, which keeps all records and queues
jobs. A runner in the customer's account gets jobs from the control plane and runs
the jobs.`,
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
	pf.StringVar(&c.flags.URL, "url", "", "`URL` of the control plane (default: the URL that 'fairlead login' stored)")
	pf.StringVar(&c.flags.TokenFile, "token-file", "", "read the token from this `FILE` (default: the token that 'fairlead login' stored)")
	pf.StringVar(&c.flags.CAFile, "ca-file", "", "trust the CA certificates in this PEM `FILE` for the control plane")
	pf.BoolVar(&c.flags.Plain, "allow-plain-http", false, "allow an http:// URL if the control plane is on another machine than the CLI: anyone on the network can then read the token")
	root.SetUsageTemplate(usageTemplate)
	c.must(root.MarkPersistentFlagFilename("token-file"))
	c.must(root.MarkPersistentFlagFilename("ca-file"))
	c.must(root.RegisterFlagCompletionFunc("url", cobra.NoFileCompletions))

	const local, objects = "local", "objects"
	root.AddGroup(&cobra.Group{ID: local, Title: "Start here:"}, &cobra.Group{ID: objects, Title: "Work with:"})
	for _, cmd := range []*cobra.Command{c.dev(), c.server(), c.login(), c.logout(), c.whoami()} {
		cmd.GroupID = local
		root.AddCommand(cmd)
	}
	for _, cmd := range []*cobra.Command{c.app(), c.install(), c.deployment(), c.approve(), c.approval(), c.action(), c.job(), c.runner(), c.group(), c.variable(), c.webhook(), c.user(), c.serviceAccount(), c.token(), c.limits(), c.audit(), c.issuer(), c.org(), c.keys(), c.plugin(), c.policy(), c.ops()} {
		cmd.GroupID = objects
		root.AddCommand(cmd)
	}
	root.AddCommand(c.version(), exitCodesTopic(), environmentTopic())
	return root
}

// must panics if a command is defined wrongly.
func (c *cli) must(err error) {
	if err != nil {
		panic(err)
	}
}

// noun returns a command that only has subcommands.
func noun(use, short, long string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: cobra.ArbitraryArgs, RunE: unknown,
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// unknown is the RunE of a command that only has subcommands. It prints the help, or
// refuses an argument that is not a subcommand.
func unknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := fmt.Sprintf("`%s --help` lists the commands.", cmd.CommandPath())
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

// say writes a line for the person to the standard error.
func (c *cli) say(format string, args ...any) {
	fmt.Fprintln(c.env.Stderr, view.Clean(fmt.Sprintf(format, args...)))
}

// client returns a client of the control plane that the flags, the environment or
// the login select.
func (c *cli) client() (*client.Client, error) {
	target, err := profile.Resolve(c.flags, c.env.Getenv)
	if err != nil {
		return nil, err
	}
	return c.clientOf(target, client.Options{})
}

func (c *cli) clientOf(t profile.Target, o client.Options) (*client.Client, error) {
	o.UserAgent, o.PlainHTTP = "fairlead/"+c.env.Version, t.Plain
	var warned sync.Once
	o.Expiring = func(at time.Time) {
		warned.Do(func() {
			c.say("Your token expires at %s. `fairlead whoami` shows who you are; docs/operations/people.md shows how people log in.", view.Time(at))
		})
	}
	var err error
	if o.CA, err = transport.ReadCA(t.CAFile); err != nil {
		return nil, usage("Use a PEM file of CA certificates for --ca-file.", "%v", err)
	}
	cl, err := client.New(t.URL, t.Token, o)
	if _, ok := errors.AsType[*transport.PlainError](err); ok {
		return nil, usage("Use https://, with --ca-file for a private CA. --allow-plain-http sends the token without TLS: use it only on a network that you trust.", "%v", err)
	}
	if err != nil {
		return nil, usage("`fairlead help environment` explains where the URL comes from.", "%v", err)
	}
	return cl, nil
}

// call returns a RunE that calls run with a client.
func (c *cli) call(run func(ctx context.Context, cl *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		return run(cmd.Context(), cl, args)
	}
}

// shows returns a RunE that prints the document that run returns. A nil document
// prints nothing.
func (c *cli) shows(run func(ctx context.Context, cl *client.Client, args []string) (view.Document, error)) func(*cobra.Command, []string) error {
	return c.call(func(ctx context.Context, cl *client.Client, args []string) error {
		d, err := run(ctx, cl, args)
		if err != nil || d == nil {
			return err
		}
		return c.print(d)
	})
}

// one returns a RunE that calls the API with the first argument and prints the answer.
func one[T any](c *cli, call func(*client.Client, context.Context, string) (T, error), doc func(T) view.Document) func(*cobra.Command, []string) error {
	return c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
		v, err := call(cl, ctx, args[0])
		return doc(v), err
	})
}

// deletes returns a RunE that deletes the object that its first argument names.
func (c *cli) deletes(noun string, remove func(*client.Client, context.Context, string) error) func(*cobra.Command, []string) error {
	return c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
		return view.Deleted(noun, args[0]), remove(cl, ctx, args[0])
	})
}

// exactly accepts as many arguments as the command's Use line names before its first
// flag.
func exactly(cmd *cobra.Command, args []string) error {
	var wanted []string
	for _, name := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(name, "-") {
			break // a required flag and its value
		}
		wanted = append(wanted, name)
	}
	switch {
	case len(args) < len(wanted):
		return fmt.Errorf("%s is missing", strings.Join(wanted[len(args):], " and "))
	case len(args) > len(wanted):
		return fmt.Errorf("%q is an unexpected argument", args[len(wanted)])
	}
	return nil
}

// readFile reads a file of at most limit bytes, or the standard input for "-". Errors
// call the content what.
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

// writeSecret writes a token to a file that only its owner can read, or returns the
// document that prints it. valid is how long the token is valid, such as "until …".
// The token is not shown again.
func (c *cli) writeSecret(file, token, valid string, doc view.Document) (view.Document, error) {
	if file == "" {
		c.say("Valid %s.", valid)
		return doc, nil
	}
	if err := safefile.Write(file, []byte(token+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("write the token: %w", err)
	}
	c.say("The token is in %s. It is valid %s.", file, valid)
	return nil, nil
}

// pairs parses the values of a repeatable name=value flag. form is its placeholder in
// the help.
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
