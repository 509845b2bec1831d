package build_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/artifact/fetch"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/runner/plugin"
)

// moduleRegistry is a registry of modules. Its modules have the address HOST/acme/NAME/aws.
type moduleRegistry struct {
	host     string              // with the port
	versions map[string][]string // by name of the module
	at       map[string]string   // by "NAME VERSION": the value of X-Terraform-Get
	files    map[string][]byte   // by path
	change   func(w http.ResponseWriter, r *http.Request) (done bool)
	asked    atomic.Int64
}

func newModuleRegistry(t *testing.T) *moduleRegistry {
	t.Helper()
	m := &moduleRegistry{versions: map[string][]string{}, at: map[string]string{}, files: map[string][]byte{}}
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	m.host = strings.TrimPrefix(srv.URL, "http://")
	return m
}

func (m *moduleRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.asked.Add(1)
	if m.change != nil && m.change(w, r) {
		return
	}
	if content, ok := m.files[r.URL.Path]; ok {
		_, _ = w.Write(content)
		return
	}
	if r.URL.Path == "/.well-known/terraform.json" {
		fmt.Fprint(w, `{"modules.v1": "/modules/v1/", "providers.v1": "/providers/v1/"}`)
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/modules/v1/acme/"), "/")
	switch {
	case len(parts) == 3 && parts[2] == "versions" && m.versions[parts[0]] != nil:
		var list []map[string]string
		for _, v := range m.versions[parts[0]] {
			list = append(list, map[string]string{"version": v})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"modules": []any{map[string]any{"versions": list}}})
	case len(parts) == 4 && parts[3] == "download":
		w.Header().Set("X-Terraform-Get", m.at[parts[0]+" "+parts[2]])
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}

// add adds a version of a module, whose archive has the files.
func (m *moduleRegistry) add(t *testing.T, name, version, at string, files ...string) {
	t.Helper()
	m.versions[name] = append(m.versions[name], version)
	if at == "" {
		at = "/files/" + name + "-" + version + ".tgz"
		m.files[at] = archived(t, files...)
	}
	m.at[name+" "+version] = at
}

// module returns the spec of a build of a module of the registry.
func (h *host) module(address, version string, change ...func(*events.JobSpec)) plugin.Spec {
	return h.spec("", "", append([]func(*events.JobSpec){func(s *events.JobSpec) {
		s.Build.Type, s.Build.From = "terraform", events.Origin{Kind: events.OriginModule, URL: address, Ref: version}
	}}, change...)...)
}

// terraformSource makes the component a module in a folder of its repository.
func terraformSource(folder string) func(*events.JobSpec) {
	return func(s *events.JobSpec) { s.Build.Type, s.Build.Source = "terraform", folder }
}

// pulled returns the files of an artifact with its component's folder, and the modules that it ships.
func (h *host) pulled(t *testing.T, digest string) (files map[string]string, folder string, shipped tfmodule.Shipped) {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if folder, err = (fetch.Puller{}).Pull(t.Context(), h.registry+"/orgs/o/hello/web/built@"+digest, root, artifact.Limits{}); err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			content, err := root.ReadFile(path)
			files[path] = string(content)
			return err
		}
		return err
	})
	if list, ok := files[artifact.ModulesFolder+"/"+tfmodule.ShippedFile]; ok && err == nil {
		shipped, err = tfmodule.ParseShipped([]byte(list))
	}
	if err != nil {
		t.Fatal(err)
	}
	return files, folder, shipped
}

const output = "output \"o\" {\n  value = \"%s\"\n}\n"

func TestWhatABuildRefusesOfModules(t *testing.T) {
	h := newHost(t)
	h.commit("linked", map[string]string{"main.tf": ""})
	if err := os.Symlink("/etc", h.root+"/linked/etc"); err != nil {
		t.Fatal(err)
	}
	h.commit("linked", nil)
	h.commit("loop", map[string]string{"main.tf": "module \"a\" { source = \"./\" }\n"})
	calls := 0
	// calling returns the spec of a component that calls a module with the source.
	calling := func(source string) plugin.Spec {
		calls++
		name := fmt.Sprintf("calls%d", calls)
		h.commit(name, map[string]string{"main.tf": "module \"m\" {\n  " + source + "\n}\n"})
		return h.spec(name, "main", terraformSource("."))
	}
	r := newModuleRegistry(t)
	r.add(t, "good", "1.0.0", "", "main.tf", "")
	r.add(t, "ssh", "1.0.0", "git::ssh://git@example.com/x.git")
	r.add(t, "disk", "1.0.0", "git::file://"+h.root+"/linked")
	r.add(t, "plain", "1.0.0", "http://169.254.169.254/latest/meta.tgz")
	r.add(t, "itself", "1.0.0", "acme/good/aws")
	r.add(t, "nowhere", "1.0.0", " ")
	r.add(t, "empty", "1.0.0", "")
	r.add(t, "two", "1.0.0", "", "a/main.tf", "", "b/main.tf", "")
	r.at["two 1.0.0"] += "//*"
	answering := func(body string) string {
		other := newModuleRegistry(t)
		other.change = func(w http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(w, body); return true }
		return other.host
	}
	elsewhere := newModuleRegistry(t)
	elsewhere.change = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/versions") {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
			return true
		}
		return false
	}
	for name, tc := range map[string]struct {
		spec plugin.Spec
		want fairlead.Reason
		says string
	}{
		"no such version":                                   {h.module(r.host+"/acme/good/aws", "9.9.9"), fairlead.ReasonSourceUnavailable, "no version of module acme/good/aws that is = 9.9.9"},
		"no such module":                                    {h.module(r.host+"/acme/gone/aws", "1.0.0"), fairlead.ReasonSourceUnavailable, "404"},
		"a host that is no registry":                        {h.module(answering("{}")+"/acme/good/aws", "1.0.0"), fairlead.ReasonSourceUnavailable, "is no module registry"},
		"a registry that sends a page":                      {h.module(answering("<html>")+"/acme/good/aws", "1.0.0"), fairlead.ReasonSourceUnavailable, "is no module registry"},
		"a registry in plain HTTP":                          {h.module(answering(`{"modules.v1": "http://registry.example.com/"}`)+"/acme/good/aws", "1.0.0"), fairlead.ReasonSourceUnavailable, "no https URL"},
		"a registry that answers all with its services":     {h.module(answering(`{"modules.v1": "/x/", "modules": "none"}`)+"/acme/good/aws", "1.0.0"), fairlead.ReasonSourceUnavailable, "not of the protocol"},
		"a registry that redirects to a link-local address": {h.module(elsewhere.host+"/acme/good/aws", "1.0.0"), fairlead.ReasonSourceUnavailable, "redirects to http://169.254.169.254"},
		"a registry that names git over ssh":                {h.module(r.host+"/acme/ssh/aws", "1.0.0"), fairlead.ReasonSourceUnavailable, "no https URL"},
		"a registry that names a folder of this disk":       {h.module(r.host+"/acme/disk/aws", "1.0.0"), fairlead.ReasonSourceUnavailable, "is neither a path"},
		"a registry that names a link-local address":        {h.module(r.host+"/acme/plain/aws", "1.0.0"), fairlead.ReasonSourceUnavailable, "no https URL"},
		"a registry that names a registry":                  {h.module(r.host+"/acme/itself/aws", "1.0.0"), fairlead.ReasonSourceUnavailable, "neither a git repository nor an archive"},
		"a registry that names nothing":                     {h.module(r.host+"/acme/nowhere/aws", "1.0.0"), fairlead.ReasonSourceUnavailable, "answer is empty"},
		"an archive without files":                          {h.module(r.host+"/acme/empty/aws", "1.0.0"), fairlead.ReasonSourceInvalid, "no .tf or .tofu file"},
		"an archive with two folders for *":                 {h.module(r.host+"/acme/two/aws", "1.0.0"), fairlead.ReasonSourceInvalid, "want one folder"},
		"a folder that the module does not have":            {h.module(r.host+"/acme/good/aws", "1.0.0", terraformSource("modules/x")), fairlead.ReasonSourceInvalid, "does not exist"},
		"an address that is none":                           {h.module("git::https://example.com/x", "1.0.0"), fairlead.ReasonSpecInvalid, "not the address"},

		"a call of a folder of this disk":            {calling(`source = "/etc"`), fairlead.ReasonSourceInvalid, `source "/etc" of module m`},
		"a call by file":                             {calling(`source = "file:///etc"`), fairlead.ReasonSourceInvalid, "module m"},
		"a call by git of this disk":                 {calling(`source = "git::file://` + h.root + `/linked"`), fairlead.ReasonSourceInvalid, "module m"},
		"a call by git over ssh":                     {calling(`source = "git@github.com:acme/x.git"`), fairlead.ReasonSourceInvalid, "module m"},
		"a call of a bucket":                         {calling(`source = "s3::https://s3.amazonaws.com/x/y.zip"`), fairlead.ReasonSourceInvalid, "its kind is s3"},
		"a call of a link-local address":             {calling(`source = "http://169.254.169.254/x.zip"`), fairlead.ReasonSourceInvalid, "no https URL"},
		"a call with a password":                     {calling(`source = "git::https://ann:secret@git.example.com/x"`), fairlead.ReasonSourceInvalid, "user name or password"},
		"a call with a ref that looks like a flag":   {calling(`source = "git::https://git.example.com/x?ref=--upload-pack=x"`), fairlead.ReasonSourceInvalid, "its ref is not"},
		"a call out of the package":                  {calling(`source = "git::` + h.url + `/linked//../../x"`), fairlead.ReasonSourceInvalid, "outside"},
		"a call of a folder that is not there":       {calling(`source = "git::` + h.url + `/linked//x"`), fairlead.ReasonSourceInvalid, "has no folder"},
		"a call of a folder through a link":          {calling(`source = "git::` + h.url + `/linked//etc"`), fairlead.ReasonSourceInvalid, "has no folder"},
		"a called package with a link out of it":     {calling(`source = "git::` + h.url + `/linked"`), fairlead.ReasonSourceInvalid, "link"},
		"a called module that calls itself":          {calling(`source = "git::` + h.url + `/loop"`), fairlead.ReasonSourceInvalid, "nested more than"},
		"a called ref that does not exist":           {calling(`source = "git::` + h.url + `/loop?ref=v9"`), fairlead.ReasonSourceUnavailable, "module m: git cannot get v9"},
		"a called version that does not exist":       {calling("source = \"" + r.host + "/acme/good/aws\"\n  version = \"~> 2.0\""), fairlead.ReasonSourceUnavailable, "that is ~> 2.0"},
		"a constraint that is none":                  {calling("source = \"" + r.host + "/acme/good/aws\"\n  version = \"new\""), fairlead.ReasonSourceInvalid, `"new" is not a constraint`},
		"an archive that is not there":               {calling(`source = "http://` + r.host + `/files/none.zip"`), fairlead.ReasonSourceUnavailable, "404"},
		"an archive with another checksum":           {calling(`source = "http://` + r.host + `/files/good-1.0.0.tgz?checksum=` + strings.Repeat("0", 64) + `"`), fairlead.ReasonSourceInvalid, "its source names 0000"},
		"an archive with a checksum of another sort": {calling(`source = "http://` + r.host + `/files/good-1.0.0.tgz?checksum=md5:1"`), fairlead.ReasonSourceInvalid, "not one of SHA-256"},
	} {
		t.Run(name, func(t *testing.T) {
			res, log, err := h.run(t, tc.spec)
			if plugin.ReasonOf(err) != tc.want || !strings.Contains(fmt.Sprint(err), tc.says) || res.Built != nil {
				t.Errorf("%+v, %v (%s)\n%s", res.Built, err, plugin.ReasonOf(err), log)
			}
		})
	}
}
