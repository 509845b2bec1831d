// Package alltypes is the story of one install of examples/all-types, an app with a component of each type: from the first
// deployment to the end of the install. It is the same on each kind of control plane and runner. It needs the CLI, a real API server
// and a real registry of the vendor.
package alltypes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
)

// App is the name of the app.
const App = "all-types"

// Releases returns the app's releases. The example is the first one.
func Releases() []string { return []string{"1.0.0", "1.1.0"} }

// approvals returns the components of the example by the approval of a deployment that covers them, in order.
func approvals() [][]string {
	return [][]string{{"base", "names", "web"}, {"shop"}, {"entry", "seed"}}
}

// Approvals returns the components of the app by the approval of a deployment that covers them, in order.
func (s *Story) Approvals() [][]string {
	if s.Sandbox == nil {
		return approvals()
	}
	return append([][]string{{ground}, {inner}}, approvals()...)
}

// components returns the components of the app, sorted by name.
func (s *Story) components() []string {
	return slices.Sorted(slices.Values(slices.Concat(s.Approvals()...)))
}

// The names of the commands that a person runs.
const (
	Approve = "deployment approve"
	Retry   = "deployment retry"
)

// Password is the value of the app's sensitive input, and secret its form in a Secret of Kubernetes.
const (
	Password = "hunter22-secret"
	secret   = "aHVudGVyMjItc2VjcmV0"
)

// Story is one install. Set the exported fields before the first call. Not safe for concurrent use.
type Story struct {
	T        testing.TB
	Name     string                       // of the install
	CLI      func(args ...string) string  // runs `fairlead args`, fails the test if it fails, and returns its standard output
	API      *client.Client               // as the administrator
	Cluster  *kube.Client                 // of the runner, as its administrator
	Vendor   *imagetest.Registry          // has the images
	Folder   string                       // of the files that the script and the plugin keep
	HasImage func(in, digest string) bool // reports whether the registry of the install has an image; in is the identifier of the install
	Builds   bool                         // a runner of the org builds: the plugin of the component entry is in the vendor's registry, and a build fetches it

	// Sandbox is what the app deploys before everything else; nil: the runner of the install has all components, and reaches the cluster.
	Sandbox *Sandbox

	// Meanwhile is called again and again while the story waits, and Settled at the end of each phase; nil: nothing.
	Meanwhile func()
	Settled   func(phase string)

	ID     string          // of the install, after Create
	inputs string          // file of the inputs
	before map[string]bool // objects of the cluster before the story
}

// Publish publishes the app's releases, and pushes their images to the vendor's registry. A release changes each component and the
// action. root is the root folder of the project.
func (s *Story) Publish(root string) {
	s.T.Helper()
	for _, release := range Releases() {
		s.Vendor.Push(s.T, "vendor/web:"+release, "linux/amd64", "linux/arm64")
		dir := s.T.TempDir()
		changed, err := write(os.DirFS(filepath.Join(root, "examples", App)), dir, release)
		if err != nil {
			s.T.Fatal(err)
		}
		if want := slices.Sorted(slices.Values(slices.Concat(append(approvals(), []string{"report"})...))); !slices.Equal(changed, want) {
			s.T.Fatalf("a release changes %q, want %q", changed, want)
		}
		if s.Builds {
			s.pushPlugin(dir, release)
		}
		if s.Sandbox != nil {
			if err := s.Sandbox.declare(dir, release, filepath.Join(root, "infra", "charts", "fairlead-runner")); err != nil {
				s.T.Fatal(err)
			}
		}
		s.CLI("app", "apply", dir, "--as", "v"+release)
	}
}

// pushPlugin pushes the plugin of the component entry to the vendor's registry, and names it in app.yaml by its digest.
func (s *Story) pushPlugin(dir, release string) {
	s.T.Helper()
	folder, app := filepath.Join(dir, "entry"), filepath.Join(dir, "app.yaml")
	var pushed struct{ URL, Digest string }
	if err := json.Unmarshal([]byte(s.CLI("plugin", "push", folder, "oci://"+s.Vendor.Host+"/vendor/entry:"+release, "--json")), &pushed); err != nil {
		s.T.Fatal(err)
	}
	text, err := os.ReadFile(app)
	if err != nil {
		s.T.Fatal(err)
	}
	named := strings.Replace(string(text), "source: ./entry", fmt.Sprintf("oci: {url: %q, digest: %q}", pushed.URL, pushed.Digest), 1)
	if named == string(text) {
		s.T.Fatal("the example has no component with the source ./entry")
	}
	if err := errors.Join(os.WriteFile(app, []byte(named), 0o600), os.RemoveAll(folder)); err != nil {
		s.T.Fatal(err)
	}
}

// write writes a release of the app, and returns the folders in which it differs from another release.
func write(example fs.FS, dir, release string) (changed []string, err error) {
	differs := map[string]bool{}
	err = fs.WalkDir(example, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(example, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if strings.Contains(string(text), Releases()[0]) {
			differs[strings.Split(path, "/")[0]] = true
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, path), []byte(strings.ReplaceAll(string(text), Releases()[0], release)), info.Mode())
	})
	return slices.Sorted(maps.Keys(differs)), err
}

// Create creates the install with further arguments of `install create`.
func (s *Story) Create(args ...string) {
	s.T.Helper()
	before, err := s.Cluster.Objects(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	s.before = before
	values := map[string]any{"registry": s.Vendor.Host, "password": Password, "folder": s.Folder}
	if s.Sandbox != nil {
		maps.Copy(values, s.facts())
	}
	file := filepath.Join(s.T.TempDir(), "inputs.yaml")
	text, err := json.Marshal(values) // JSON is YAML
	if err = errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
		s.T.Fatal(err)
	}
	s.inputs = file
	s.CLI(append([]string{"install", "create", s.Name, "--app", App, "--input-file", file}, args...)...)
	in, err := s.API.GetInstall(s.T.Context(), s.Name)
	if err != nil {
		s.T.Fatal(err)
	}
	s.ID = in.ID
}

// SetSecrets sets the secret inputs again. The command that creates an install keeps them back until the runner of its stack is online.
func (s *Story) SetSecrets() {
	s.T.Helper()
	s.CLI("install", "update", s.Name, "--input-file", s.inputs)
}

// Run deploys the first release, deploys it again, deploys the second one, runs the action, removes everything and forgets the
// install. It checks what each phase leaves, and returns the names of the person's commands by phase.
func (s *Story) Run() map[string][]string {
	s.T.Helper()
	first, second := Releases()[0], Releases()[1]
	did := map[string][]string{}
	var last wire.Deployment
	did["create"], _ = s.settle("create", "install", "deploy", s.Name, "--version", "v"+first)
	s.checkDeployed(first)
	if _, last = s.settle("again", "install", "deploy", s.Name, "--version", "v"+first); len(jobsOf(last)) > 0 {
		s.T.Errorf("a deployment without a change has the jobs %q, want none", jobsOf(last))
	}
	did["change"], _ = s.settle("change", "install", "deploy", s.Name, "--version", "v"+second)
	s.checkDeployed(second)
	did["run"], last = s.settle("run", "action", "run", s.Name, "report", "--param", "title=Today")
	s.checkReport(last)
	did["teardown"], _ = s.settle("teardown", "install", "teardown", s.Name, "--ask", "always")
	s.CLI("install", "forget", s.Name, "--yes")
	s.checkGone()
	return did
}

func jobsOf(d wire.Deployment) (jobs []string) {
	for _, c := range d.Components {
		jobs = append(jobs, c.PlanJob, c.Job)
	}
	return slices.DeleteFunc(jobs, func(id string) bool { return id == "" })
}

// The limits of a deployment of the story.
const (
	patience = 3 * time.Minute       // how long it may work until it ends or waits for a person
	pause    = 50 * time.Millisecond // between two requests for its state
	commands = 20                    // how many commands of a person it may need
)

// settle starts a deployment and waits for its end. A person runs the commands that `deployment show` offers, until the deployment
// succeeds. settle returns the names of the commands, and the last record of the deployment.
func (s *Story) settle(phase string, command ...string) (did []string, last wire.Deployment) {
	s.T.Helper()
	id := strings.TrimSpace(s.CLI(append(command, "--detach")...))
	deployments := []string{id}
	for range commands {
		last = s.await(id)
		if last.State == "succeeded" {
			if s.Sandbox != nil {
				s.checkSandbox(deployments)
			}
			if s.Settled != nil {
				s.Settled(phase)
			}
			return did, last
		}
		name := Approve
		if last.State != "awaiting-approval" {
			name = Retry
			s.T.Logf("in the phase %s the deployment is %s:\n%s", phase, last.State, s.CLI("deployment", "show", id))
		}
		did = append(did, name)
		if out := strings.TrimSpace(s.CLI(append(s.offered(id, name), "--detach")...)); name == Retry {
			id = out
			deployments = append(deployments, id)
		}
	}
	s.T.Fatalf("the deployment of the phase %s does not succeed after the commands %q\n%s", phase, did, s.CLI("deployment", "show", id))
	return nil, wire.Deployment{}
}

// await waits until the deployment has ended or waits for a person.
func (s *Story) await(id string) wire.Deployment {
	s.T.Helper()
	for deadline := time.Now().Add(patience); ; {
		if s.Meanwhile != nil {
			s.Meanwhile()
		}
		d, err := s.API.GetDeployment(s.T.Context(), id)
		switch {
		case err != nil:
			s.T.Fatal(err)
		case d.Done(), d.State == "awaiting-approval":
			return d
		case time.Now().After(deadline):
			s.T.Fatalf("after %s the deployment still works:\n%s", patience, s.CLI("deployment", "show", id))
		}
		select {
		case <-s.T.Context().Done():
			s.T.Fatal("the test ended")
		case <-time.After(pause):
		}
	}
}

// quoted finds the commands that a text offers.
var quoted = regexp.MustCompile("`fairlead ([^`]+)`")

// offered returns the arguments of the first command with the name that `deployment show` offers.
func (s *Story) offered(id, name string) []string {
	s.T.Helper()
	shown := s.CLI("deployment", "show", id)
	for _, m := range quoted.FindAllStringSubmatch(shown, -1) {
		if strings.HasPrefix(m[1], name+" ") {
			return strings.Fields(m[1])
		}
	}
	s.T.Fatalf("no `fairlead %s …` is offered in:\n%s", name, shown)
	return nil
}
