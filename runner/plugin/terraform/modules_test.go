package terraform_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/gitserver"
)

// nowhere is the host of a registry that no process serves.
const nowhere = "127.0.0.1:1"

// shipping is a component whose artifact ships the modules that it calls.
var shipping = map[string]string{
	"live/main.tf": `
module "net" {
  source  = "` + nowhere + `/acme/vpc/aws//net"
  version = "~> 5.0"
}
module "leaf" {
  source  = "acme/leaf/aws"
  version = "1.0.0"
}
module "here" { source = "./here" }
module "mono" { source = "git::https://` + nowhere + `/mono.git//a/b?ref=v1" }
module "hub" { source = "github.com/acme/hub//deep?ref=v1.2" }
module "zip" { source = "https://` + nowhere + `/z.zip" }
output "all" { value = join(" ", [module.net.o, module.leaf.o, module.here.o, module.mono.o, module.hub.o, module.zip.o]) }
output "path" { value = module.net.path }
`,
	"live/here/main.tf":      "module \"leaf\" { source = \"" + nowhere + "/acme/leaf/aws\" }\noutput \"o\" { value = module.leaf.o }\n",
	".fairlead/0/net/o.tf":   "module \"other\" { source = \"../other\" }\nresource \"terraform_data\" \"x\" { input = module.other.o }\noutput \"o\" { value = terraform_data.x.output }\noutput \"path\" { value = path.module }\n",
	".fairlead/0/other/o.tf": "module \"leaf\" { source = \"acme/leaf/aws\" }\noutput \"o\" { value = file(\"${path.module}/../text\") }\n",
	".fairlead/0/text":       "net",
	".fairlead/1/o.tf":       `output "o" { value = "leaf" }`,
	".fairlead/2/a/b/o.tf":   `output "o" { value = "mono" }`,
	".fairlead/3/deep/o.tf":  `output "o" { value = "hub" }`,
	".fairlead/4/o.tf":       `output "o" { value = "zip" }`,
	".fairlead/modules.json": `{"v": 1, "modules": [
		{"key": "net", "source": "` + nowhere + `/acme/vpc/aws//net", "version": "5.1.0", "package": "0", "folder": "net"},
		{"key": "leaf", "source": "acme/leaf/aws", "version": "1.0.0", "package": "1", "folder": "."},
		{"key": "here", "source": "./here", "folder": "live/here"},
		{"key": "net.other", "source": "../other", "folder": "other"},
		{"key": "net.other.leaf", "source": "acme/leaf/aws", "version": "3.0.0", "package": "1", "folder": "."},
		{"key": "here.leaf", "source": "` + nowhere + `/acme/leaf/aws", "version": "2.0.0", "package": "1", "folder": "."},
		{"key": "mono", "source": "git::https://` + nowhere + `/mono.git//a/b?ref=v1", "package": "2", "folder": "a/b"},
		{"key": "hub", "source": "github.com/acme/hub//deep?ref=v1.2", "package": "3", "folder": "deep"},
		{"key": "zip", "source": "https://` + nowhere + `/z.zip", "package": "4", "folder": "."}]}`,
}

// No server of the modules exists, so each plan and apply that fetches one fails.
func TestShippedModulesAreNotFetched(t *testing.T) {
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			d := newDeployed(t, path, "", nil, nil)
			d.sources = map[string]map[string]string{"x#live": shipping}
			d.spec.Artifact = &events.ArtifactRef{Digest: "x#live"}
			plan, err := d.run(t, "plan", nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := plan.Plan.ChangeSet.Fetched; len(got) > 0 {
				t.Errorf("the plan shows fetched modules: %v", got)
			}
			// An apply on another machine has no result of the plan's init.
			if err := os.RemoveAll(filepath.Join(d.data, "plans", string(d.spec.Job), "init")); err != nil {
				t.Fatal(err)
			}
			applied, err := d.run(t, "apply", &plan)
			if err != nil {
				t.Fatal(err)
			}
			if all, at := string(applied.Outputs["all"].Value), string(applied.Outputs["path"].Value); all != `"net leaf leaf mono hub zip"` || at != `".terraform/modules/net/net"` {
				t.Errorf("the outputs are %s and %s", all, at)
			}
			d.expectNoChanges(t)
			d.tearDown(t)
		})
	}
}

// An artifact that ships no module whose call it has: the tool fetches it, and the plan shows that. The apply gets the files that
// the plan fetched, also if the repository has others by then.
func TestModulesThatAPlanFetchesAreShown(t *testing.T) {
	root := t.TempDir()
	served, err := gitserver.Handler(root, "")
	if err != nil {
		t.Fatal(err)
	}
	var fetches atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/info/refs") {
			fetches.Add(1)
		}
		served.ServeHTTP(w, r)
	}))
	defer srv.Close()
	repository, err := gitserver.New(filepath.Join(root, "extra"))
	if err != nil {
		t.Fatal(err)
	}
	commit := func(text string) string {
		id, err := repository.Commit(map[string]string{"deep/main.tf": "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" { command = \"cat '${path.module}/text' > \\\"$OUT\\\"\" }\n}\n", "deep/text": text})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	at := "git::" + srv.URL + "/extra//deep?ref=main"
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			module := map[string]string{"main.tf": "module \"extra\" { source = \"" + at + "\" }\n"}
			if name != "terraform" {
				module["main.tf"] = "variable \"from\" {}\nmodule \"extra\" { source = var.from }\n"
			}
			module["main.tf"] += "module \"ours\" { source = \"" + nowhere + "/acme/ours/aws\" }\n"
			module[".fairlead/modules.json"] = `{"v": 1, "modules": [{"key": "ours", "source": "` + nowhere + `/acme/ours/aws", "version": "1.0.0", "package": "0", "folder": "."}]}`
			module[".fairlead/0/main.tf"] = ""
			d := newDeployed(t, path, "", module, nil)
			if name != "terraform" {
				d.spec.Vars["from"] = events.SpecVar{Value: json.RawMessage(`"` + at + `"`)}
			}
			out := filepath.Join(t.TempDir(), "text")
			d.spec.Env = map[string]string{"OUT": out}
			planned := commit("planned with " + name)
			fetches.Store(0)
			plan, err := d.run(t, "plan", nil)
			if err != nil {
				t.Fatal(err)
			}
			want := changeset.Module{Address: "module.extra", Source: at, Commit: planned}
			if got := plan.Plan.ChangeSet.Fetched; len(got) != 1 || got[0] != want {
				t.Errorf("the plan shows %+v, want %+v", got, want)
			}
			if fetches.Load() == 0 {
				t.Error("the plan fetched nothing")
			}
			commit("not approved")
			if err := os.RemoveAll(filepath.Join(d.data, "plans", string(d.spec.Job), "init")); err != nil {
				t.Fatal(err)
			}
			fetches.Store(0)
			if _, err := d.run(t, "apply", &plan); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(out); string(got) != "planned with "+name || fetches.Load() > 0 {
				t.Errorf("the apply ran %q, %v, after %d fetches", got, err, fetches.Load())
			}
		})
	}
}

// The list of modules comes from an artifact. It must not place a folder outside of the module's.
func TestDamagedListOfModulesIsRefused(t *testing.T) {
	for tool, path := range tofu.Tools(t) {
		for name, list := range map[string]string{
			"no JSON":              `{`,
			"a newer list":         `{"v": 2}`,
			"a key with a path":    `{"v": 1, "modules": [{"key": "../x", "source": "a/b/c", "package": "0", "folder": "."}]}`,
			"an empty key":         `{"v": 1, "modules": [{"key": "", "source": "a/b/c", "package": "0", "folder": "."}]}`,
			"a package with path":  `{"v": 1, "modules": [{"key": "x", "source": "a/b/c", "package": "../../state", "folder": "."}]}`,
			"a folder out of it":   `{"v": 1, "modules": [{"key": "x", "source": "a/b/c", "package": "0", "folder": "../1"}]}`,
			"two modules of a key": `{"v": 1, "modules": [{"key": "x", "source": "a/b/c", "package": "0", "folder": "."}, {"key": "x", "source": "a/b/c", "package": "0", "folder": "."}]}`,
		} {
			t.Run(tool+"/"+name, func(t *testing.T) {
				d := newDeployed(t, path, "", map[string]string{"main.tf": "", ".fairlead/modules.json": list, ".fairlead/0/main.tf": ""}, nil)
				if _, err := d.run(t, "plan", nil); plugin.ReasonOf(err) != fairlead.ReasonArtifactInvalid {
					t.Errorf("error %v, want artifact-invalid", err)
				}
			})
		}
	}
}
