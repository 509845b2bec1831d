package awstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/test/alltypes"
	"github.com/fairlead/fairlead/test/hosts"
	"github.com/fairlead/fairlead/test/proxy"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/program"
)

// TestStoryOfAllTypesOnTheStacks runs the story of one install of examples/all-types through the resources of the two templates: each
// job in a task of its own with the role of its operation, states in the customer's bucket, and images in the customer's ECR. A person
// approves each plan. At the end nothing is left.
func TestStoryOfAllTypesOnTheStacks(t *testing.T) {
	skipIfShort(t)
	did := storyOnTheStacks(t, nil)
	for phase, want := range map[string]int{"create": len(alltypes.Approvals()), "change": len(alltypes.Approvals()), "run": 0, "teardown": len(alltypes.Approvals())} {
		if got := did[phase]; len(got) != want || slices.ContainsFunc(got, func(name string) bool { return name != alltypes.Approve }) {
			t.Errorf("in the phase %s the person ran %q, want %d approvals", phase, got, want)
		}
	}
}

// TestStoryOfAllTypesOnTheStacksSurvivesKills kills the container of each job's task when the job has done its work and has not
// reported it, as the loss of its host does: once for each operation on each component. The person follows the offered commands. The
// story ends as it does without a kill, and nothing is left.
func TestStoryOfAllTypesOnTheStacksSurvivesKills(t *testing.T) {
	skipIfShort(t)
	did := storyOnTheStacks(t, &alltypes.Killer{At: alltypes.AtTheEnd, Drop: true})
	t.Logf("the person ran %v", did)
}

// storyOnTheStacks runs the story, and returns the names of the person's commands by phase. The killer kills the containers of tasks;
// nil: nothing is killed.
func storyOnTheStacks(t *testing.T, k *alltypes.Killer) map[string][]string {
	needTofu(t)
	server := kube.Server{Private: true} // the story compares all objects of the cluster
	t.Cleanup(server.Stop)
	kubeconfig := server.Kubeconfig(t)
	cluster, err := kube.NewClient(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	a := deploy(t, releasedTemplate(t, released()))
	var warm warmSteps
	front := proxy.New(warm.front(a.front()))
	w := connect(t, a, map[string]http.Handler{planeHost: front, "api.ecr." + region + ".amazonaws.com": a.gates["ECR"].handler}).operated()
	defer w.close()
	// What the image of a task has, and what a kubeconfig in its network would be.
	pass := []string{"FAIRLEAD_PLUGINS=" + pluginsOf(t), "KUBECONFIG=" + kubeconfig, "FAIRLEAD_PASS_ENV=SSL_CERT_FILE,HTTPS_PROXY,KUBECONFIG"}
	w.tasks.Environ = append(w.tasks.Environ, pass...)

	api, err := client.New("https://"+planeHost, w.token, client.Options{HTTP: &http.Client{Transport: hosts.Transport(t, w.authority, w.proxy)}})
	w.ok("make a client", err)
	s := &alltypes.Story{T: t, Name: "acme", CLI: func(args ...string) string { return string(w.cli(args...)) }, API: api, Cluster: cluster,
		Vendor: imagetest.Start(t), Folder: filepath.Join(t.TempDir(), "files"),
		HasImage: func(in, digest string) bool { return w.registry.hasImage("fairlead/"+in+"/web", digest) }}
	s.Publish("../../../examples")
	s.Create("--account", accountID, "--region", region)
	c, stop := w.installStack(s.Name, pass...)
	defer stop()
	w.eventually("the stack is online", func() bool { return ask[wire.Stack](w, "install", "stack", s.Name).State == "online" })
	if k != nil {
		k.Kill = func(j wire.Job) {
			task := fmt.Sprintf("%s-%d", j.ID, j.Epoch)
			if id, ahead := warm.of(task); ahead {
				task = id
			}
			w.tasks.Kill(task)
		}
		k.Join(s, front)
	}

	did := s.Run()
	for _, role := range []string{"ReadOnlyRole", "ProvisionRole", "DeprovisionRole"} {
		if len(w.sessionsOf(c.attribute(role, "Arn"))) == 0 {
			t.Errorf("no job took the %s", role)
		}
	}
	objects := s3.NewFromConfig(w.account.config("S3"), func(o *s3.Options) { o.UsePathStyle = true })
	for _, bucket := range []string{c.ref("StateBucket"), w.ref("Blobs")} {
		out, err := objects.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket})
		w.ok("list the bucket", err)
		for _, o := range out.Contents {
			if !strings.Contains(*o.Key, s.ID) || strings.HasPrefix(*o.Key, "plans/") { // the bucket removes saved plans after 30 days
				continue
			}
			// A tool that destroyed everything leaves a state without resources in a bucket.
			got, err := objects.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: o.Key})
			w.ok("get "+*o.Key, err)
			var state struct {
				Resources []any
				Outputs   map[string]any
			}
			w.ok("read "+*o.Key, json.NewDecoder(got.Body).Decode(&state))
			if bucket != c.ref("StateBucket") || len(state.Resources)+len(state.Outputs) > 0 {
				t.Errorf("the bucket %s still has %s with %d resources and %d outputs", bucket, *o.Key, len(state.Resources), len(state.Outputs))
			}
		}
	}
	return did
}

// pluginsOf returns a folder with the programs of the plugins, as the runner's image has them.
func pluginsOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"kubernetes", "images"} {
		text, err := os.ReadFile(program.Build(t, "runner/"+name))
		if err != nil {
			t.Fatal(err)
		}
		program.Write(t, filepath.Join(dir, name), text)
	}
	return dir
}
