package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/profile"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/supervise"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/retry"
)

// localRunner is the runner that `fairlead dev` runs. Installs that name no runner use it.
const localRunner = "local"

// onlineWait is how long `fairlead dev` waits for its runner before it warns that the
// runner is not online.
const onlineWait = 15 * time.Second

func (c *cli) dev() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use: "dev", Short: "Run a control plane and a runner on this machine",
		Long: `Runs a control plane and a runner on this machine. The control plane stores its data
in one folder. The runner is a second process. If the runner dies, it is started
again. The command also logs the CLI in to this control plane, unless the CLI is
logged in to another machine.

The runner needs OpenTofu or Terraform. It uses the program in $FAIRLEAD_TOFU. If this
variable is not set, the runner uses tofu or terraform from the PATH.`,
		Example: `  fairlead dev
  fairlead dev --data ./fairlead-data --listen 127.0.0.1:0 --ready-file ready.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.builds = true
			return c.serve(cmd.Context(), f, slog.LevelWarn, func(ctx context.Context, s Server, data string) error {
				return c.develop(ctx, s, data, f)
			})
		},
	}
	c.serverFlags(cmd, &f)
	cmd.Flags().BoolVar(&f.shared, "shared-process", false, "let several installs use the runner, whose jobs are processes of one user: they reach each other")
	return cmd
}

// develop runs the runner beside the server until ctx ends.
func (c *cli) develop(ctx context.Context, s Server, data string, f serverFlags) error {
	target := profile.Target{URL: s.URL(), Plain: true} // it is on this machine, whatever its host name is
	token, err := os.ReadFile(s.TokenFile())
	if err != nil {
		return fmt.Errorf("read the administrator's token: %w", err)
	}
	target.Token = strings.TrimSpace(string(token))
	cl, err := c.clientOf(target, client.Options{Retries: -1})
	if err != nil {
		return err
	}
	login, err := c.devLogin(s, data)
	if err != nil {
		return err
	}

	var agent sync.WaitGroup
	defer agent.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	agent.Go(func() {
		supervise.Run(ctx, supervise.Agent{
			Command: func(ctx context.Context) (*exec.Cmd, error) { return c.agentCommand(ctx, s, data, f) },
			Tell:    func(text string) { c.say("fairlead: %s", text) },
			Note: func(text string) {
				if !f.quiet {
					c.say("fairlead: %s", text)
				}
			},
			Now:   c.env.Now,
			Again: c.env.Interrupts,
		})
	})
	if online := waitOnline(ctx, cl); !online && ctx.Err() == nil {
		c.say("fairlead: the runner is not online after %s; jobs stay queued until it is", onlineWait)
	}
	tool := c.tool()
	if ctx.Err() == nil && !f.quiet {
		c.say("%s", welcome(s.URL(), data, login, tool))
	}
	if tool == "" {
		c.say("fairlead: found no OpenTofu and no Terraform: deployments will fail. Install one of them, or set $FAIRLEAD_TOFU, then start this command again.")
	}
	if err := ready(f.readyFile, s); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// tool returns the program that the runner will find; "" if there is none.
func (c *cli) tool() string {
	if path := c.env.Getenv("FAIRLEAD_TOFU"); path != "" {
		return path // the runner reports a wrong path with more detail
	}
	for _, name := range []string{"tofu", "terraform"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// toolName returns the product and the path of a program. A user must see which of the
// two products runs, because their licences differ.
func toolName(path string) string {
	switch strings.TrimSuffix(filepath.Base(path), ".exe") {
	case "tofu":
		return "OpenTofu, " + path
	case "terraform":
		return "Terraform, " + path
	}
	return path
}

// devLogin logs the CLI in to the server. It keeps a login to another machine, which may
// be a production server. It returns the text for the user.
func (c *cli) devLogin(s Server, data string) (string, error) {
	stored, err := profile.Load(c.env.Getenv)
	if err != nil {
		return "", err
	}
	if stored.URL != "" && !profile.OnThisMachine(stored.URL) {
		return fmt.Sprintf("You stay logged in to %s. To use this one in a shell:\n  export %s=%s %s=%s",
			stored.URL, profile.EnvURL, s.URL(), profile.EnvTokenFile, s.TokenFile()), nil
	}
	seed, err := filepath.Abs(filepath.Join(runnerData(data), seedFile))
	if err != nil {
		return "", fmt.Errorf("find the data folder: %w", err)
	}
	path, err := profile.Save(c.env.Getenv, profile.Stored{URL: s.URL(), TokenFile: s.TokenFile(), KeyFile: seed, Plain: !profile.OnThisMachine(s.URL())})
	if err != nil {
		return fmt.Sprintf("Your login could not be stored (%v). To use this one in a shell:\n  export %s=%s %s=%s",
			err, profile.EnvURL, s.URL(), profile.EnvTokenFile, s.TokenFile()), nil
	}
	return "You are logged in to it, by " + path, nil
}

func welcome(url, data, login, tool string) string {
	if tool != "" {
		login += "\nIts runner deploys with " + toolName(tool)
	}
	return fmt.Sprintf(`Fairlead is running, with a runner, at %s
Its data is in %s
%s

Next, in another terminal:
  fairlead app apply examples/hello
  fairlead install create hello --app hello
  fairlead install deploy hello

Ctrl-C stops it once running jobs have ended; a second Ctrl-C does not wait.`, url, data, login)
}

// runnerData returns the data folder of the runner whose control plane has the folder data.
func runnerData(data string) string { return filepath.Join(data, "runner") }

// agentCommand returns the command that runs the runner's agent.
func (c *cli) agentCommand(ctx context.Context, s Server, data string, f serverFlags) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	name, args := self, []string{"runner", "agent"}
	if sibling := filepath.Join(filepath.Dir(self), "fairlead-runner"); exists(sibling) {
		name, args = sibling, []string{"agent"} // smaller, because it holds no control plane
	}
	tokenFile, err := s.EnrolmentTokenFile(ctx, localRunner)
	if err != nil {
		return nil, fmt.Errorf("create an enrolment token: %w", err)
	}
	private, err := filepath.Abs(data)
	if err != nil {
		return nil, fmt.Errorf("find the data folder: %w", err)
	}
	level := "warn"
	if f.verbose {
		level = "debug"
	}
	args = append(args,
		"--url", s.URL(), "--allow-plain-http", "true",
		"--data", runnerData(data), "--make-install-key", "true",
		"--enrolment-token-file", tokenFile,
		"--log-level", level,
		"--private", private,
		"--owner-token-file", s.TokenFile(),
	)
	if f.shared {
		args = append(args, "--shared-process", "true")
	}
	// The user of `fairlead dev` wrote the modules, or read them. So the modules may read
	// and write all files of the user, without those in the data folder.
	for variable, flag := range map[string]string{"FAIRLEAD_READABLE": "--readable", "FAIRLEAD_WRITABLE": "--writable"} {
		if c.env.Getenv(variable) == "" {
			args = append(args, flag, "/")
		}
	}
	cmd := exec.Command(name, args...) // without a context, which would kill the agent; signals stop the agent
	cmd.Env = runnerEnv(os.Environ())
	cmd.Stdout, cmd.Stderr = c.env.Stderr, c.env.Stderr
	return cmd, nil
}

// runnerEnv returns the environment without the variables that hold the user's login: a
// runner must not call the API as the user.
func runnerEnv(environ []string) []string {
	var out []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case profile.EnvToken, profile.EnvTokenFile, profile.EnvURL, profile.EnvConfigDir, "FAIRLEAD_DATA":
		default:
			out = append(out, kv)
		}
	}
	return out
}

// waitOnline reports whether the runner came online in time.
func waitOnline(ctx context.Context, cl *client.Client) bool {
	// An agent needs less than 100 ms to come online.
	pauses := retry.Policy{First: 10 * time.Millisecond, Longest: 320 * time.Millisecond, Within: onlineWait}
	return retry.Run(ctx, pauses, func(ctx context.Context) error {
		r, err := cl.GetRunner(ctx, localRunner)
		if err == nil && r.State != "online" {
			err = fmt.Errorf("runner %s is %s", r.Name, r.State)
		}
		return err
	}) == nil
}
