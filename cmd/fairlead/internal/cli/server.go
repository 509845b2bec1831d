package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
)

// closeWait is how long the server may take to finish running requests when it stops.
const closeWait = 10 * time.Second

// serverFlags are the flags of both `dev` and `server`.
type serverFlags struct {
	builds                                bool // not a flag: `fairlead dev` has a runner, which builds
	firstLogin                            bool // not a flag: the token of `fairlead server` is for the first login
	data, listen, url, readyFile, storage string
	template, image, registry             string
	lease, grace, noOutput, checkpoints   time.Duration
	tlsCert, tlsKey                       string
	limits                                map[string]int
	quiet, verbose, loopbackIssuers       bool
	shared                                bool // of `fairlead dev`
}

// minLease is long enough for a step to try several renewals of its lease. A step renews
// its lease at most once a second.
const minLease = 3 * time.Second

func (c *cli) serverFlags(cmd *cobra.Command, f *serverFlags) {
	cmd.Flags().StringVar(&f.data, "data", "", "store all data in this `DIR` (default: $FAIRLEAD_DATA, else \"fairlead\" in the user's data folder)")
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8400", "listen on this `ADDRESS`; port 0 selects a free port")
	cmd.Flags().StringVar(&f.url, "public-url", "", "`URL` at which runners reach the control plane; a runner's AWS signature covers it (default: the address that the server listens on)")
	cmd.Flags().StringVar(&f.template, "stack-template-url", "", "`URL` of the published template of customers' runner stacks (default: $FAIRLEAD_STACK_TEMPLATE_URL)")
	cmd.Flags().StringVar(&f.registry, "registry", "", "the `PROGRAM` that serves the registry of images (default: $FAIRLEAD_REGISTRY, else fairlead-registry beside this program)")
	cmd.Flags().StringVar(&f.image, "runner-image", "", "the runner `IMAGE` that customers' stacks start, with its digest (default: $FAIRLEAD_RUNNER_IMAGE)")
	cmd.Flags().StringVar(&f.readyFile, "ready-file", "", "when the control plane is ready, write a JSON object with its \"url\" and \"token_file\" to this `FILE`")
	cmd.Flags().StringVar(&f.storage, "storage", "local", "where a new runner with the name \"local\" stores state, as `PLACE`: \"local\" (the runner's data folder) or \"http\" (the control plane)")
	cmd.Flags().DurationVar(&f.lease, "lease", 45*time.Second, "a job is lost if its lease is not renewed for this long")
	cmd.Flags().DurationVar(&f.grace, "grace", 2*time.Minute, "how long an interrupted tool may take to save its state before it is killed")
	cmd.Flags().DurationVar(&f.noOutput, "no-output-timeout", 10*time.Minute, "interrupt a tool if it writes no log line for this long")
	cmd.Flags().DurationVar(&f.checkpoints, "checkpoint-every", time.Minute, "sign a checkpoint of the audit this long after the first entry that no checkpoint has")
	cmd.Flags().BoolVar(&f.loopbackIssuers, "loopback-issuers", false, "let service accounts trust OIDC issuers on this machine, also without TLS; for tests only")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print only errors and warnings")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "log at level debug")
	cmd.MarkFlagsMutuallyExclusive("quiet", "verbose")
	c.must(cmd.RegisterFlagCompletionFunc("storage", cobra.FixedCompletions([]string{"local", "http"}, cobra.ShellCompDirectiveNoFileComp)))
}

// dataDir returns the default data folder of a server. It does not depend on the working
// directory. It returns "" if the user has no home folder.
func (c *cli) dataDir() string {
	if dir := c.env.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "fairlead")
	}
	if home := c.env.Getenv("HOME"); home != "" && runtime.GOOS == "linux" {
		return filepath.Join(home, ".local", "share", "fairlead")
	}
	if dir, err := os.UserConfigDir(); err == nil {
		return filepath.Join(dir, "fairlead", "data")
	}
	return ""
}

func (c *cli) server() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use: "server", Short: "Run a control plane on this machine, without a runner",
		Long: `Runs a control plane that stores its data in one folder. The file "admin-token" in
this folder has the API token of the administrator. To connect a runner, create an
enrolment token with 'fairlead runner enrol'.`,
		Example: `  fairlead server --data /var/lib/fairlead --listen 0.0.0.0:8400 \
    --tls-cert tls.crt --tls-key tls.key --public-url https://fairlead.example.com:8400
  fairlead login https://fairlead.example.com:8400 --token-file /var/lib/fairlead/admin-token`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slog.LevelInfo
			if f.quiet {
				level = slog.LevelWarn
			}
			f.firstLogin = true
			return c.serve(cmd.Context(), f, level, func(ctx context.Context, s Server, _ string) error {
				if !f.quiet {
					c.say("The control plane is running at %s\nLog in with:\n  fairlead login %s --token-file %s", s.URL(), cmp.Or(f.url, s.URL()), s.TokenFile())
				}
				if err := ready(f.readyFile, s); err != nil {
					return err
				}
				<-ctx.Done()
				return nil
			})
		},
	}
	c.serverFlags(cmd, &f)
	cmd.Flags().StringVar(&f.tlsCert, "tls-cert", "", "serve TLS with the certificate in this PEM `FILE`; when the file changes, the server reads it again")
	cmd.Flags().StringVar(&f.tlsKey, "tls-key", "", "private key of the certificate, a PEM `FILE`")
	cmd.Flags().StringToIntVar(&f.limits, "limit", nil, "set a limit of callers or a quota of each org, as `NAME=NUMBER`; can be repeated; names: "+strings.Join(limitNames(), ", "))
	cmd.Flags().Lookup("limit").DefValue = "" // each limit has its own default
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	c.must(cmd.RegisterFlagCompletionFunc("limit", cobra.FixedCompletions(limitNames(), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)))
	return cmd
}

// named returns the fields by their names in --limit.
func (l *ServerLimits) named() map[string]*int {
	return map[string]*int{"connections": &l.Connections, "requests-per-second": &l.Rate, "requests-burst": &l.Burst, "requests-at-once": &l.AtOnce, "waits": &l.Waits,
		"org-requests-per-second": &l.OrgRate, "org-requests-burst": &l.OrgBurst, "org-requests-at-once": &l.OrgAtOnce,
		"wrong-tokens-per-second": &l.WrongRate, "wrong-tokens-burst": &l.WrongAt,
		"log-mib-per-hour": &l.LogPerHour, "log-burst-mib": &l.LogBurst}
}

func limitNames() []string {
	names := slices.Collect(maps.Keys((&ServerLimits{}).named()))
	for _, q := range fairlead.QuotaNames() {
		names = append(names, string(q))
	}
	slices.Sort(names)
	return names
}

// readLimits returns the limits from the values of --limit.
func readLimits(given map[string]int) (l ServerLimits, err error) {
	fields := l.named()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(limitNames(), name) {
			return l, usage("", "--limit has no name %q; its names are %s", name, strings.Join(limitNames(), ", "))
		}
		if given[name] < 1 {
			return l, usage("", "--limit %s is %d; it must be at least 1", name, given[name])
		}
		if field, ok := fields[name]; ok {
			*field = given[name]
			continue
		}
		if l.Quotas == nil {
			l.Quotas = fairlead.Quotas{}
		}
		l.Quotas[fairlead.Quota(name)] = given[name]
	}
	return l, nil
}

// serve starts a server and calls run. The context of run ends when the user interrupts
// the command or the server stops. The server is closed after run has returned.
func (c *cli) serve(ctx context.Context, f serverFlags, level slog.Level, run func(ctx context.Context, s Server, data string) error) error {
	if c.env.StartServer == nil {
		return c.lacks("has no control plane")
	}
	data := cmp.Or(f.data, c.env.Getenv("FAIRLEAD_DATA"), c.dataDir())
	if data == "" {
		return usage("Set --data.", "no data folder is set, and the user has no home folder")
	}
	data, err := filepath.Abs(data)
	if err != nil {
		return fmt.Errorf("find the data folder: %w", err)
	}
	switch f.storage {
	case "local", "http":
	default:
		return usage("", "--storage is %q; it must be \"local\" or \"http\"", f.storage)
	}
	if f.lease < minLease || f.grace < time.Second || f.noOutput < time.Second {
		return usage("", "--lease must be at least %s, and --grace and --no-output-timeout at least 1s", minLease)
	}
	limits, err := readLimits(f.limits)
	if err != nil {
		return err
	}
	if f.verbose {
		level = slog.LevelDebug
	}
	if f.readyFile != "" { // an old file would report that this server is ready
		if err := os.Remove(f.readyFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the old ready file: %w", err)
		}
	}
	// Running requests and a draining runner need the server after the user has
	// interrupted the command, so the server has its own context.
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s, err := c.env.StartServer(own, ServerOptions{
		Data: data, Listen: f.listen, URL: f.url, TLSCert: f.tlsCert, TLSKey: f.tlsKey, Version: c.env.Version, Storage: f.storage, Builds: f.builds, Lease: f.lease, Grace: f.grace, NoOutput: f.noOutput, Checkpoints: f.checkpoints, LoopbackIssuers: f.loopbackIssuers, FirstLogin: f.firstLogin, Limits: limits,
		StackTemplateURL: cmp.Or(f.template, c.env.Getenv("FAIRLEAD_STACK_TEMPLATE_URL")), RunnerImage: cmp.Or(f.image, c.env.Getenv("FAIRLEAD_RUNNER_IMAGE")), Registry: cmp.Or(f.registry, c.env.Getenv("FAIRLEAD_REGISTRY")),
		Logger: slog.New(slog.NewTextHandler(c.env.Stderr, &slog.HandlerOptions{Level: level})),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- s.Wait()
		cancel()
	}()
	runErr := run(ctx, s, data)
	select {
	case err := <-ended:
		return fmt.Errorf("the control plane stopped: %w", err)
	default:
	}
	closing, done := context.WithTimeout(own, closeWait)
	defer done()
	if err := s.Close(closing); err != nil && runErr == nil {
		runErr = fmt.Errorf("stop the control plane: %w", err)
	}
	return runErr
}

// ready writes the file of --ready-file. A script waits for this file before it uses the
// server.
func ready(file string, s Server) error {
	if file == "" {
		return nil
	}
	data, err := json.Marshal(struct {
		URL       string `json:"url"`
		TokenFile string `json:"token_file"`
	}{s.URL(), s.TokenFile()})
	if err != nil {
		return fmt.Errorf("encode the ready file: %w", err)
	}
	if err := safefile.Write(file, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the ready file: %w", err)
	}
	return nil
}
