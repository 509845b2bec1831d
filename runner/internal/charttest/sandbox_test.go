package charttest_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/runner/executor/kubelettest"
	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/test/alltypes"
	"github.com/fairlead/fairlead/test/e2e"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// TestSandboxFromNothing runs the story of an install of examples/all-types that begins without a cluster's runner: the runner of
// this machine creates the sandbox and deploys a second runner there, whose pods run all other jobs, each as the service account of
// its role. A person approves each plan, five times for a first deployment. The teardown leaves nothing.
func TestSandboxFromNothing(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
	server := kube.Server{Private: true} // the story compares all objects of the cluster
	t.Cleanup(server.Stop)
	kubeconfig := server.Kubeconfig(t)
	cfg, c := connect(t, kubeconfig)
	const namespace = "fairlead"
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tools := tofu.Tools(t)
	tool := tools[slices.Sorted(maps.Keys(tools))[0]]
	plugins := program.Copies(t, "runner/kubernetes", "runner/images")
	environ := []string{"PATH=/usr/bin:" + os.Getenv("PATH"), "FAIRLEAD_TOFU=" + tool, "FAIRLEAD_PLUGINS=" + plugins}
	kubelettest.Start(t, c, namespace, kubelettest.Options{Image: repository + "@" + digest, Program: program.Build(t, "runner", "-tags=clusters"), Cluster: cfg,
		Environ: append(environ, "FAIRLEAD_PASS_ENV=KUBECONFIG")})

	w := newDev(t, environ...)
	images := imagetest.Start(t)
	cluster, err := kube.NewClient(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s := &alltypes.Story{T: t, Name: "acme", CLI: w.must, API: w.client, Cluster: cluster, Vendor: imagetest.Start(t), Folder: filepath.Join(t.TempDir(), "files"),
		HasImage: func(in, digest string) bool { return images.Pull(t, in+"/web@"+digest) == digest },
		Sandbox:  &alltypes.Sandbox{Kind: "kubernetes", Runner: "kubernetes", Namespace: namespace, Image: repository + "@" + digest, Port: freePort(t), Registry: `{type: oci, url: "` + images.URL() + `"}`}}
	s.Publish("../../..")
	s.Create()
	did := s.Run()
	for phase, want := range map[string]int{"create": len(s.Approvals()), "change": len(s.Approvals()), "run": 0, "teardown": len(s.Approvals())} {
		if got := did[phase]; len(got) != want || slices.ContainsFunc(got, func(name string) bool { return name != alltypes.Approve }) {
			t.Errorf("in the phase %s the person ran %q, want %d approvals", phase, got, want)
		}
	}
}

// dev is a `fairlead dev` with its CLI.
type dev struct {
	t        *testing.T
	fairlead string
	env      []string
	client   *client.Client // as the administrator
}

func newDev(t *testing.T, env ...string) *dev {
	t.Helper()
	dir := t.TempDir()
	d := &dev{t: t, fairlead: program.Build(t, "cmd/fairlead", "-tags=clusters"),
		env: append(env, "PATH="+os.Getenv("PATH"), "HOME="+dir, "FAIRLEAD_CONFIG_DIR="+filepath.Join(dir, "config"))}
	ready := filepath.Join(dir, "ready.json")
	cmd := exec.Command(d.fairlead, "dev", "--quiet", "--data", filepath.Join(dir, "data"), "--storage", "http", "--listen", "127.0.0.1:0", "--ready-file", ready)
	cmd.Env = d.env
	p, err := e2e.Launch("fairlead dev", cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("output of fairlead dev:\n%s", p.Output())
		}
	})
	var at struct {
		URL       string `json:"url"`
		TokenFile string `json:"token_file"`
	}
	e2e.Until(t, "fairlead dev is ready", func() bool {
		if p.Ended() {
			t.Fatalf("fairlead dev ended: %s", p.Output())
		}
		b, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(b, &at) == nil
	})
	d.env = append(d.env, "FAIRLEAD_URL="+at.URL, "FAIRLEAD_TOKEN_FILE="+at.TokenFile)
	token, err := os.ReadFile(at.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	if d.client, err = client.New(at.URL, strings.TrimSpace(string(token)), client.Options{}); err != nil {
		t.Fatal(err)
	}
	return d
}

// must runs `fairlead args` and returns its standard output.
func (d *dev) must(args ...string) string {
	d.t.Helper()
	var out, errs strings.Builder
	cmd := exec.CommandContext(d.t.Context(), d.fairlead, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = d.env, &out, &errs
	if err := cmd.Run(); err != nil {
		d.t.Fatalf("fairlead %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}
