package alltypes

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// checkDeployed fails the test if an object of a component is missing or is of another release.
func (s *Story) checkDeployed(release string) {
	s.T.Helper()
	out, err := s.API.GetOutputs(s.T.Context(), s.Name, false)
	if err != nil {
		s.T.Fatal(err)
	}
	output := func(component, name string) (text string) {
		_ = json.Unmarshal(out.Components[component][name].Value, &text) // an output that is missing or no text stays ""
		return text
	}
	all, _ := json.Marshal(out.Components) // raw JSON can be encoded
	if output("names", "url") != "https://"+s.Name+".example.com/" || output("names", "release") != release || output("shop", "app_version") != release ||
		output("base", "namespace") != s.Name || output("entry", "release") != release || string(out.Components["seed"]["goods"].Value) != "2" {
		s.T.Errorf("the outputs are %s, want those of release %s", all, release)
	}
	image, reference := s.Vendor.Pull(s.T, "vendor/web:"+release), output("web", "reference")
	if image == "" || !strings.HasSuffix(reference, "/"+s.ID+"/web@"+image) || !s.HasImage(s.ID, image) {
		s.T.Errorf("the image of the install is %s, want a copy of %s in its registry", reference, image)
	}
	in := "/namespaces/" + s.Name
	for path, want := range map[string]string{
		"/api/v1" + in + "/configmaps/shop":        `"release":"` + release + `"`,
		"/api/v1" + in + "/secrets/login":          `"password":"` + secret + `"`,
		"/api/v1" + in + "/serviceaccounts/web":    `"app.kubernetes.io/version":"` + release + `"`,
		"/apis/apps/v1" + in + "/deployments/shop": `"image":"` + reference + `"`,
	} {
		if status, body, err := s.Cluster.Do(s.T.Context(), http.MethodGet, path, ""); status != http.StatusOK || !strings.Contains(string(body), want) {
			s.T.Errorf("%s is answered with %d (%v), want %s in %s", path, status, err, want, body)
		}
	}
	for file, want := range map[string]string{".goods": "tea " + release + "\ncoffee " + release + "\n", ".json": reference} {
		if text, err := os.ReadFile(filepath.Join(s.Folder, s.Name+file)); err != nil || !strings.Contains(string(text), want) {
			s.T.Errorf("the file %s has %q (%v), want %q", file, text, err, want)
		}
	}
}

// checkReport fails the test if the run of the action did not print its report.
func (s *Story) checkReport(last wire.Deployment) {
	s.T.Helper()
	if len(last.Components) != 1 || last.Components[0].Job == "" {
		s.T.Fatalf("the run of the action has the components %+v, want one with a job", last.Components)
	}
	if log := s.CLI("job", "logs", last.Components[0].Job); !strings.Contains(log, "Today: https://"+s.Name+".example.com/ has 2 goods") {
		s.T.Errorf("the report is %q", log)
	}
}

// checkGone fails the test if the install, an object, an image or a file of it is left.
func (s *Story) checkGone() {
	s.T.Helper()
	if _, err := s.API.GetInstall(s.T.Context(), s.Name); !client.HasCode(err, "install-not-found") {
		s.T.Errorf("the install is still known: %v", err)
	}
	if s.Sandbox != nil {
		if _, err := s.API.GetRunner(s.T.Context(), s.Sandbox.RunnerOf(s.Name)); !client.HasCode(err, "runner-not-found") {
			s.T.Errorf("the runner in the sandbox is still known: %v", err)
		}
	}
	left := s.added()
	for deadline := time.Now().Add(patience); len(left) > 0 && time.Now().Before(deadline); left = s.added() { // the cluster ends a namespace by and by
		<-time.After(pause)
	}
	for _, object := range left {
		s.T.Errorf("the cluster has %s, which it did not have before the story", object)
	}
	for _, release := range Releases() {
		if s.HasImage(s.ID, s.Vendor.Pull(s.T, "vendor/web:"+release)) {
			s.T.Errorf("the registry of the install still has the image of release %s", release)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(s.Folder, "*")); len(files) > 0 { // the pattern is valid
		s.T.Errorf("the files %q are left", slices.Sorted(slices.Values(files)))
	}
}

// added returns the objects of the cluster that did not exist before the story, sorted.
func (s *Story) added() (objects []string) {
	s.T.Helper()
	now, err := s.Cluster.Objects(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	for object := range now {
		if !s.before[object] {
			objects = append(objects, object)
		}
	}
	slices.Sort(objects)
	return objects
}
