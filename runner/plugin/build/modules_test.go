package build_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// A module of a registry calls modules of a registry, of git and of an archive, which call others. The artifact has them all.
func TestBuildShipsTheModulesThatAModuleCalls(t *testing.T) {
	h := newHost(t)
	r := newModuleRegistry(t)
	h.commit("shared", map[string]string{"net/main.tf": fmt.Sprintf(output, "net") + "module \"near\" { source = \"../near\" }\n", "near/main.tf": fmt.Sprintf(output, "near")}, "v1")
	h.commit("vpc", map[string]string{
		"main.tf": "module \"net\" { source = \"git::" + h.url + "/shared//net?ref=v1\" }\n" +
			"module \"again\" {\n  source = \"git::" + h.url + "/shared//near?ref=v1\" # the same package\n}\n" +
			"module \"here\" { source = \"./modules/here\" }\n",
		"modules/here/main.tf":      "module \"leaf\" {\n  version = \">= 1.0, < 2.0\"\n  source  = \"" + r.host + "/acme/leaf/aws//deep\"\n}\n",
		"modules/here/main.tf.json": `{"module": {"zip": {"source": "http://` + r.host + `/files/z.zip?checksum=sha256:` + digestOf(zipped(t)) + `"}}}`,
	}, "v5.1.0")
	r.add(t, "vpc", "5.1.0", "git::"+h.url+"/vpc?ref=v5.1.0")
	r.add(t, "vpc", "5.0.0", "git::"+h.url+"/gone?ref=v5.0.0")
	r.add(t, "leaf", "1.9.0", "", "top/deep/main.tf", fmt.Sprintf(output, "leaf"))
	r.at["leaf 1.9.0"] += "//*"
	for _, v := range []string{"1.10.0-rc.1", "2.0.0", "1.2.0"} {
		r.add(t, "leaf", v, "git::"+h.url+"/gone")
	}
	r.files["/files/z.zip"] = zipped(t)

	res, log, err := h.run(t, h.module(r.host+"/acme/vpc/aws", "5.1.0"))
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	files, folder, shipped := h.pulled(t, res.Built.Artifact)
	got := map[string]string{}
	for _, m := range shipped.Modules {
		if m.Package == "" {
			got[m.Key] = " "
			continue
		}
		got[m.Key] = m.Version + " " + files[".fairlead/"+m.Package+"/"+strings.TrimPrefix(m.Folder+"/", "./")+"main.tf"]
	}
	want := map[string]string{"net": " " + files[".fairlead/0/net/main.tf"], "again": " " + fmt.Sprintf(output, "near"), "here": " ", "here.leaf": "1.9.0 " + fmt.Sprintf(output, "leaf"), "here.zip": " " + fmt.Sprintf(output, "zip")}
	want["net"] = " " + fmt.Sprintf(output, "net") + "module \"near\" { source = \"../near\" }\n"
	if folder != "." || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the folder is %q, the modules are %q, want %q", folder, got, want)
	}
	if packages := len(shipped.Modules) - 2; files[fmt.Sprintf(".fairlead/%d/main.tf", packages)] != "" || files[".fairlead/0/.git/HEAD"] != "" {
		t.Error("a package is shipped twice, or with git's files")
	}
	for name := range files {
		if strings.Contains(name, ".git/") {
			t.Errorf("the artifact has %s", name)
		}
	}

	// Another build of the same sources has the same digest, also from another commit.
	h.commit("shared", map[string]string{"net/.terraform/cache": "not shipped\n"}, "v1")
	again, log, err := h.run(t, h.module(r.host+"/acme/vpc/aws", "5.1.0"))
	if err != nil || again.Built.Artifact != res.Built.Artifact {
		t.Errorf("%+v, %v, want the artifact %s\n%s", again.Built, err, res.Built.Artifact, log)
	}
}

// A component in git that calls no module of another place keeps the artifact that older runners read.
func TestComponentWithoutRemoteModulesKeepsItsArtifact(t *testing.T) {
	h := newHost(t)
	h.commit("hello", map[string]string{"web/main.tf": "module \"b\" { source = \"../b\" }\n", "b/main.tf": "variable \"from\" { default = \"x\" }\n"})
	res, log, err := h.run(t, h.spec("hello", "main", terraformSource("web")))
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	app := t.TempDir()
	for name, content := range map[string]string{"web/main.tf": "module \"b\" { source = \"../b\" }\n", "b/main.tf": "variable \"from\" { default = \"x\" }\n"} {
		if err := os.MkdirAll(app+"/"+strings.Split(name, "/")[0], 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(app+"/"+name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(app)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	want, err := artifact.PackShared(root, "web", []string{"b"}, artifact.Limits{})
	if err != nil || res.Built.Artifact != want.Digest() {
		t.Errorf("the artifact is %s, want %s, %v", res.Built.Artifact, want.Digest(), err)
	}
}

// A source that depends on a variable has no value yet: the plan fetches it.
func TestSourceFromAVariableIsLeftToThePlan(t *testing.T) {
	h := newHost(t)
	h.commit("hello", map[string]string{"main.tf": "variable \"from\" { default = \"git::" + h.url + "/nothing\" }\nmodule \"a\" { source = var.from }\nmodule \"b\" { source = \"${var.from}?ref=v1\" }\n"})
	res, log, err := h.run(t, h.spec("hello", "main", terraformSource(".")))
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	if _, _, shipped := h.pulled(t, res.Built.Artifact); len(shipped.Modules) > 0 {
		t.Errorf("the artifact ships %v", shipped.Modules)
	}
}

// The registry gets the token, and the git server and the other registry that modules name do not.
func TestOnlyTheRegistryGetsItsToken(t *testing.T) {
	h := newHost(t)
	var stolen atomic.Bool
	other := newModuleRegistry(t)
	other.change = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "" {
			stolen.Store(true)
		}
		return false
	}
	other.add(t, "leaf", "1.0.0", "", "main.tf", "")
	other.files["/vpc.tgz"] = archived(t, "main.tf", "module \"leaf\" { source = \""+other.host+"/acme/leaf/aws\" }\n")
	private := newModuleRegistry(t)
	private.add(t, "vpc", "1.0.0", "http://"+other.host+"/vpc.tgz?signature=s3cret-signature")
	private.change = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "Bearer "+password {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	if _, log, err := h.run(t, h.module(private.host+"/acme/vpc/aws", "1.0.0")); plugin.ReasonOf(err) != fairlead.ReasonSourceUnavailable || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a token: %v\n%s", err, log)
	}
	res, log, err := h.run(t, h.module(private.host+"/acme/vpc/aws", "1.0.0", token(password)))
	if err != nil || stolen.Load() {
		t.Fatalf("%v; the other server got the token: %v\n%s", err, stolen.Load(), log)
	}
	files, _, _ := h.pulled(t, res.Built.Artifact)
	delete(other.files, "/vpc.tgz")
	_, failed, err := h.run(t, h.module(private.host+"/acme/vpc/aws", "1.0.0", token(password)))
	if err == nil {
		t.Error("a build without the archive succeeded")
	}
	for where, text := range map[string]string{"the artifact": fmt.Sprint(files), "the log": log + failed, "the message": fmt.Sprint(err)} {
		if strings.Contains(text, password) || strings.Contains(text, "s3cret-signature") {
			t.Errorf("%s has the token or a signed URL:\n%s", where, text)
		}
	}
}

// The credentials of a component in git are also for the modules on the same host.
func TestModulesOnTheComponentsHostGetItsPassword(t *testing.T) {
	h := newHost(t)
	h.commit("private/leaf", map[string]string{"main.tf": ""})
	h.commit("private/hello", map[string]string{"main.tf": "module \"leaf\" { source = \"git::" + h.url + "/private/leaf\" }\n"})
	if _, log, err := h.run(t, h.spec("private/hello", "main", terraformSource("."), token(password))); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("another server got the password")
		}
		http.NotFound(w, r)
	}))
	defer thief.Close()
	h.commit("private/hello", map[string]string{"main.tf": "module \"leaf\" { source = \"git::" + thief.URL + "/leaf\" }\n"})
	if _, log, err := h.run(t, h.spec("private/hello", "main", terraformSource("."), token(password))); plugin.ReasonOf(err) != fairlead.ReasonSourceUnavailable {
		t.Errorf("%v\n%s", err, log)
	}
}

// A component in git calls a private module of a registry, which calls a private repository of a third host.
func TestModulesOnOtherHostsGetTheirOwnLogins(t *testing.T) {
	first, third, r := newHost(t), newHost(t), newModuleRegistry(t)
	var mu sync.Mutex
	got := map[string]map[string]bool{} // headers by host
	r.change = func(w http.ResponseWriter, req *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if got[req.Host] == nil {
			got[req.Host] = map[string]bool{}
		}
		got[req.Host][req.Header.Get("Authorization")] = true
		if req.Header.Get("Authorization") != "Bearer registry-token" {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	}
	third.commit("private/leaf", map[string]string{"main.tf": ""})
	r.add(t, "middle", "1.0.0", "", "main.tf", "module \"leaf\" { source = \"git::"+third.url+"/private/leaf\" }\n")
	first.commit("private/hello", map[string]string{"main.tf": "module \"middle\" {\n  source = \"" + r.host + "/acme/middle/aws\"\n  version = \"~> 1.0\"\n}\n"})
	thirdHost := strings.TrimPrefix(third.url, "http://")
	logins := func(all map[string]string) func(*events.JobSpec) {
		return func(s *events.JobSpec) {
			s.Build.Logins = all
			s.Vars["OF_REGISTRY"] = events.SpecVar{Value: json.RawMessage(`"registry-token"`), Sensitive: true}
			s.Vars["OF_THIRD"] = events.SpecVar{Value: json.RawMessage(`"reader:` + password + `"`), Sensitive: true}
		}
	}
	spec := func(all map[string]string) plugin.Spec {
		return first.spec("private/hello", "main", terraformSource("."), token(password), logins(all))
	}
	res, log, err := first.run(t, spec(map[string]string{r.host: "OF_REGISTRY", thirdHost: "OF_THIRD"}))
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	if _, _, shipped := first.pulled(t, res.Built.Artifact); len(shipped.Modules) != 2 {
		t.Errorf("the artifact ships %+v", shipped.Modules)
	}
	if strings.Contains(log, "registry-token") || strings.Contains(log, password) {
		t.Errorf("the log has a login:\n%s", log)
	}
	if len(got) != 1 || len(got[r.host]) != 1 {
		t.Errorf("the registry got the headers %v", got)
	}
	for name, all := range map[string]map[string]string{
		"no login of the registry":   {thirdHost: "OF_THIRD"},
		"no login of the third host": {r.host: "OF_REGISTRY"},
		"swapped logins":             {r.host: "OF_THIRD", thirdHost: "OF_REGISTRY"},
	} {
		if _, log, err := first.run(t, spec(all)); plugin.ReasonOf(err) != fairlead.ReasonSourceUnavailable {
			t.Errorf("%s: %v\n%s", name, err, log)
		}
	}
}
