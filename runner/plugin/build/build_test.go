package build_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/tools/gitserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "c0rrect-horse-battery"

// host has a git server with the repositories public and private, a registry of artifacts, and the slow repository, whose
// requests wait.
type host struct {
	t        *testing.T
	root     string
	url      string // of the git server
	registry string // host and port

	mu   sync.Mutex
	slow io.Writer // the log of the job that asks for the slow repository
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, root: t.TempDir()}
	public, err := gitserver.Handler(h.root, "")
	if err != nil {
		t.Fatal(err)
	}
	private, err := gitserver.Handler(h.root, password)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", public)
	mux.Handle("/private/", private)
	mux.HandleFunc("/slow/", func(_ http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		io.WriteString(h.slow, "working\n") // the test's own log
		h.mu.Unlock()
		<-r.Context().Done()
	})
	git := httptest.NewServer(mux)
	t.Cleanup(git.Close)
	registry, err := artifact.RegistryHandler(t.TempDir(), artifact.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored := httptest.NewServer(registry)
	t.Cleanup(stored.Close)
	h.url, h.registry = git.URL, strings.TrimPrefix(stored.URL, "http://")
	return h
}

// commit commits files to a repository and returns the commit.
func (h *host) commit(repository string, files map[string]string, tags ...string) string {
	h.t.Helper()
	r, err := gitserver.New(filepath.Join(h.root, repository))
	if err != nil {
		h.t.Fatal(err)
	}
	commit, err := r.Commit(files, tags...)
	if err != nil {
		h.t.Fatal(err)
	}
	return commit
}

// Operations, Run: the plugin with a registry, and with the sensitive variables of a spec as its secrets.
func (h *host) Operations() []string { return build.New(build.Config{}).Operations() }

func (h *host) Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	env.Push = func(ctx context.Context, repository string, a *artifact.Artifact) (string, error) {
		return artifact.Push(ctx, h.registry+"/"+repository, artifact.Access{}, a)
	}
	env.Environ = map[string]string{}
	for name, v := range spec.Vars {
		var text string
		if err := json.Unmarshal(v.Value, &text); err != nil {
			return plugin.Result{}, err
		}
		env.Environ[name] = text
	}
	h.mu.Lock()
	h.slow = env.Log
	h.mu.Unlock()
	return build.New(build.Config{Environ: os.Environ()}).Run(ctx, spec, env)
}

func (h *host) spec(repository, ref string, change ...func(*events.JobSpec)) plugin.Spec {
	s := plugin.Spec{Plugin: build.Name, Operation: "build", Job: "job_1", Epoch: 1, Grace: 1, Push: "orgs/o/hello/web/built",
		Build: &events.Build{App: "hello", Component: "web", Type: "script", Source: ".", From: events.Origin{Kind: events.OriginGit, URL: h.url + "/" + repository, Ref: ref}}}
	for _, c := range change {
		c(&s)
	}
	return s
}

// token gives the build a secret with the value.
func token(value string) func(*events.JobSpec) {
	return func(s *events.JobSpec) {
		s.Build.From.Credentials = "TOKEN"
		s.Vars = map[string]events.SpecVar{"TOKEN": {Value: json.RawMessage(`"` + value + `"`), Sensitive: true}}
	}
}

// run builds the spec and returns the result with the log.
func (h *host) run(t *testing.T, spec plugin.Spec) (plugin.Result, string, error) {
	t.Helper()
	data, log := t.TempDir(), plugintest.NewLog()
	res, err := h.Run(t.Context(), spec, plugintest.Env(t, data, "job_1-1", log, nil, spec))
	return res, log.String(), err
}

func TestPlugin(t *testing.T) {
	h := newHost(t)
	h.commit("hello", map[string]string{"run*": "#!/bin/sh\n"})
	h.commit("private/hello", map[string]string{"run*": "#!/bin/sh\n"})
	plugintest.Run(t, plugintest.Subject{
		New:  func(string) plugin.Plugin { return h },
		Good: func(int) plugin.Spec { return h.spec("private/hello", "main", token(password)) },
		Slow: func(*testing.T, string) plugin.Spec { return h.spec("slow/hello", "main", token(password)) },
		// It has sources only so that the suite looks for secrets; a build fetches none.
		Sources: map[string]map[string]string{"": {}},
	})
}

// The artifact has the files of the commit and nothing of git. The same files at another commit have the same digest.
func TestArtifactIsNamedByItsFiles(t *testing.T) {
	h := newHost(t)
	files := map[string]string{"web/run*": "#!/bin/sh\n", "web/text": "one\n", "other/file": "not shipped\n"}
	first := h.commit("hello", files, "v1")
	in := func(s *events.JobSpec) { s.Build.Source = "web" }
	res, log, err := h.run(t, h.spec("hello", "v1", in))
	if err != nil || res.Built == nil || res.Built.Revision != first {
		t.Fatalf("%+v, %v\n%s", res.Built, err, log)
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := artifact.Pull(t.Context(), h.registry+"/orgs/o/hello/web/built@"+res.Built.Artifact, artifact.Access{}, root, artifact.Limits{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	entries, err := os.ReadDir(root.Name())
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if want := []string{"run", "text"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the artifact has %v, %v; want %v", got, err, want)
	}
	second := h.commit("hello", map[string]string{"other/file": "changed\n"}, "v2")
	again, log, err := h.run(t, h.spec("hello", "v2", in))
	if err != nil || again.Built.Revision != second || second == first || again.Built.Artifact != res.Built.Artifact {
		t.Errorf("%+v, %v, want the artifact %s of commit %s\n%s", again.Built, err, res.Built.Artifact, second, log)
	}
	if old, log, err := h.run(t, h.spec("hello", first, in)); err != nil || old.Built.Revision != first {
		t.Errorf("a commit that no ref names any more: %+v, %v\n%s", old.Built, err, log)
	}
}

func TestWhatABuildRefuses(t *testing.T) {
	h := newHost(t)
	h.commit("hello", map[string]string{"run*": "#!/bin/sh\n", "module/main.tf": "variable \"size\" {}\n", "empty/README": ""})
	h.commit("links", map[string]string{"run*": "#!/bin/sh\n"})
	if err := os.Symlink("/etc/passwd", filepath.Join(h.root, "links", "secret")); err != nil {
		t.Fatal(err)
	}
	h.commit("links", nil)
	h.commit("private/hello", map[string]string{"run*": "#!/bin/sh\n"})
	for name, tc := range map[string]struct {
		spec plugin.Spec
		want fairlead.Reason
		says string // in the message
	}{
		"no such repository":             {h.spec("nothing", "main"), fairlead.ReasonSourceUnavailable, "git cannot get main"},
		"no such ref":                    {h.spec("hello", "v9"), fairlead.ReasonSourceUnavailable, "git cannot get v9"},
		"no such commit":                 {h.spec("hello", strings.Repeat("1", 40)), fairlead.ReasonSourceUnavailable, "git cannot get 1111"},
		"a private repository":           {h.spec("private/hello", "main"), fairlead.ReasonSourceUnavailable, "secret of a private repository"},
		"a wrong password":               {h.spec("private/hello", "main", token("wrong-horse-battery")), fairlead.ReasonSourceUnavailable, "secret of a private repository"},
		"a ref that looks like a flag":   {h.spec("hello", "--upload-pack=touch /tmp/owned"), fairlead.ReasonSourceUnavailable, ""},
		"a repository on this disk":      {h.spec("", "main", func(s *events.JobSpec) { s.Build.From.URL = "file://" + filepath.Join(h.root, "hello") }), fairlead.ReasonSourceUnavailable, ""},
		"a repository by a program":      {h.spec("", "main", func(s *events.JobSpec) { s.Build.From.URL = "ext::sh -c true" }), fairlead.ReasonSourceUnavailable, ""},
		"no such folder":                 {h.spec("hello", "main", func(s *events.JobSpec) { s.Build.Source = "modul" }), fairlead.ReasonSourceInvalid, `Did you mean "./module"?`},
		"a folder out of the repository": {h.spec("hello", "main", func(s *events.JobSpec) { s.Build.Source = "../hello" }), fairlead.ReasonSourceInvalid, "leaves"},
		"no executable run":              {h.spec("hello", "main", func(s *events.JobSpec) { s.Build.Source = "empty" }), fairlead.ReasonSourceInvalid, `holds no executable file "run"`},
		"a link out of the repository":   {h.spec("links", "main"), fairlead.ReasonSourceInvalid, "secret"},
		"a variable that the module does not have": {h.spec("hello", "main", func(s *events.JobSpec) {
			s.Build.Type, s.Build.Source, s.Build.Vars = "terraform", "module", []string{"size", "sise"}
		}), fairlead.ReasonSourceInvalid, "has no variable"},
		"a variable without a value": {h.spec("hello", "main", func(s *events.JobSpec) {
			s.Build.Type, s.Build.Source = "terraform", "module"
		}), fairlead.ReasonSourceInvalid, "needs the variable"},
		"no component": {h.spec("hello", "main", func(s *events.JobSpec) { s.Build = nil }), fairlead.ReasonSpecInvalid, ""},
	} {
		t.Run(name, func(t *testing.T) {
			res, log, err := h.run(t, tc.spec)
			if plugin.ReasonOf(err) != tc.want || !strings.Contains(err.Error(), tc.says) || res.Built != nil {
				t.Errorf("%+v, %v (%s)\n%s", res.Built, err, plugin.ReasonOf(err), log)
			}
			if strings.Contains(log+err.Error(), "wrong-horse") {
				t.Errorf("the log or the message has the password: %v\n%s", err, log)
			}
		})
	}
}

// A server that is asked with a password must not be able to send git, and the password, to another server.
func TestRedirectGetsNoPassword(t *testing.T) {
	h := newHost(t)
	h.commit("hello", map[string]string{"run*": "#!/bin/sh\n"})
	asked := make(chan string, 10)
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") }))
	defer thief.Close()
	lure := httptest.NewServer(http.RedirectHandler(thief.URL+"/hello/info/refs?service=git-upload-pack", http.StatusFound))
	defer lure.Close()
	_, log, err := h.run(t, h.spec("", "main", token(password), func(s *events.JobSpec) { s.Build.From.URL = lure.URL + "/hello" }))
	if plugin.ReasonOf(err) != fairlead.ReasonSourceUnavailable || len(asked) > 0 {
		t.Errorf("%v; the other server got %d request(s)\n%s", err, len(asked), log)
	}
}

// A repository's hooks, filters and configuration run nothing on the build runner.
func TestRepositoryRunsNothing(t *testing.T) {
	h := newHost(t)
	mark := filepath.Join(t.TempDir(), "ran")
	script := "#!/bin/sh\ntouch " + mark + "\n"
	h.commit("hello", map[string]string{"run*": script, ".gitattributes": "* filter=evil\n", ".gitconfig": "[filter \"evil\"]\nsmudge = touch " + mark + "\n",
		".githooks/post-checkout*": script, "hooks/post-checkout*": script, ".gitmodules": "[submodule \"x\"]\npath = x\nurl = ext::sh -c 'touch " + mark + "'\n"})
	if _, log, err := h.run(t, h.spec("hello", "main")); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a file of the repository ran")
	}
}
