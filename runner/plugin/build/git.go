package build

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/internal/toolprocess"
)

// git runs git for one repository.
type git struct {
	plugin *Plugin
	spec   plugin.Spec
	env    plugin.Env
	folder string // of the repository
	url    string
	ref    string
}

// defaultUser is the user name for a secret without one. GitHub requires it for the tokens of its apps. Other servers
// accept any name with a token.
const defaultUser = "x-access-token"

// fetch writes the files of the ref to the folder and returns the commit. It fetches no history, no submodules and no
// other refs.
func (g git) fetch(ctx context.Context) (commit string, err error) {
	fmt.Fprintf(g.env.Log, "fetching %s of %s\n", g.ref, g.url)
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=build", "."},
		{"fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--end-of-options", g.url, g.ref},
		{"checkout", "--quiet", "--detach", "--force", "FETCH_HEAD"},
	} {
		if err := g.run(ctx, g.env.Log, args...); err != nil {
			return "", err
		}
	}
	var out bytes.Buffer
	if err := g.run(ctx, &out, "rev-parse", "--verify", "HEAD"); err != nil {
		return "", err
	}
	commit = strings.TrimSpace(out.String())
	if (appspec.Git{Ref: g.ref}).Commit() && commit != g.ref {
		return "", plugin.Errorf(fairlead.ReasonSourceUnavailable, "the server of %s returns commit %s in place of %s", g.url, commit, g.ref)
	}
	return commit, nil
}

func (g git) run(ctx context.Context, stdout io.Writer, args ...string) error {
	environ := g.environ()
	path, err := exec.LookPath("git")
	if err != nil {
		return &plugin.Error{Reason: fairlead.ReasonToolMissing, Message: "git is not on this runner: install git on the machine of the build runner, then restart the agent", Err: err}
	}
	end := toolprocess.Process{Name: "git " + args[0], Command: append([]string{path}, args...), Dir: g.folder, Environ: environ,
		Workspace: g.env.Workspace, Stdout: stdout, Stderr: g.env.Log, Grace: g.spec.Grace.Duration(), Confine: g.env.Confine}.Run(ctx)
	err = end.Failure(ctx)
	if err != nil && plugin.ReasonOf(err) == fairlead.ReasonToolFailed && !end.Interrupted {
		return &plugin.Error{Reason: fairlead.ReasonSourceUnavailable, Err: err,
			Message: fmt.Sprintf("git cannot get %s of %s: see the job's log. Check the URL, the ref, and whether the runner has the secret of a private repository", g.ref, g.url)}
	}
	return err
}

// environ returns git's environment. Its settings are variables, because arguments are visible to other processes and a
// file could be changed by the repository's content. They turn off all that could run a program or ask a person, and all
// protocols but HTTP.
func (g git) environ() map[string]string {
	out := toolprocess.Environment(g.plugin.env, g.plugin.passEnv, g.spec, g.env.Workspace)
	from := g.spec.Build.From
	all := loginsOf(*g.spec.Build, g.env.Environ)
	g.env.Complete(out)
	delete(out, from.Credentials)
	for _, name := range g.spec.Build.Logins {
		delete(out, name)
	}
	settings := [][2]string{
		{"core.hooksPath", "/dev/null"},
		{"core.fsmonitor", "false"},
		{"core.autocrlf", "false"},
		{"transfer.fsckObjects", "true"},
		{"credential.helper", ""},
		{"protocol.version", "2"}, // a server of version 2 returns any commit by its digest
		{"submodule.recurse", "false"},
		{"advice.detachedHead", "false"},
	}
	if u, err := url.Parse(g.url); err == nil {
		if login, ok := all[u.Host]; ok {
			// A redirect to another server must not get the password.
			settings = append(settings, [2]string{"http.followRedirects", "false"},
				[2]string{"http." + g.url + ".extraHeader", "Authorization: " + login.basic()})
		}
	}
	out["GIT_CONFIG_NOSYSTEM"], out["GIT_CONFIG_GLOBAL"] = "1", "/dev/null"
	out["GIT_TERMINAL_PROMPT"], out["GIT_ALLOW_PROTOCOL"] = "0", "https:http"
	out["GIT_LFS_SKIP_SMUDGE"] = "1"
	out["LC_ALL"] = "C"
	if ca := out["SSL_CERT_FILE"]; ca != "" {
		out["GIT_SSL_CAINFO"] = ca
	}
	out["GIT_CONFIG_COUNT"] = strconv.Itoa(len(settings))
	for i, s := range settings {
		n := strconv.Itoa(i)
		out["GIT_CONFIG_KEY_"+n], out["GIT_CONFIG_VALUE_"+n] = s[0], s[1]
	}
	return out
}
