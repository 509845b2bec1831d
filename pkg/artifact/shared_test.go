package artifact_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/artifact/fetch"
	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// A component calls a module beside its folder. One artifact contains the component's folder
// and the module's folder. The relative path between the folders is unchanged, and the
// artifact records the path of the component's folder.
func TestSharedFoldersAreInTheArtifact(t *testing.T) {
	app := writeTree(t, map[string]string{
		"app.yaml": "fairlead: v1", "web/main.tf": "module", "web/prod.tfstate": "secret", "db/main.tf": "other",
		"shared/net/main.tf": "net", "shared/net/.terraform/x": "cache", "shared/unused/main.tf": "not called",
	})
	pack := func(folder string, shared ...string) *artifact.Artifact {
		t.Helper()
		a, err := artifact.PackShared(openRoot(t, app), folder, shared, artifact.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	alone, err := artifact.Pack(openRoot(t, filepath.Join(app, "web")), artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if got := pack("web").Digest(); got != alone.Digest() {
		t.Errorf("without shared folders the artifact is %s, want %s: older runners refuse it", got, alone.Digest())
	}
	a := pack("web", "shared/net")
	if again := pack("web", "shared/net", "shared/net", "web"); again.Digest() != a.Digest() {
		t.Errorf("the same folders give %s and %s", a.Digest(), again.Digest())
	}
	if other := pack("shared/net", "web"); other.Digest() == a.Digest() {
		t.Error("the digest does not depend on the component's folder")
	}

	host, seen := serveRegistry(t, t.TempDir())
	if _, err := artifact.Push(t.Context(), host+"/components/web", artifact.Access{}, a); err != nil {
		t.Fatal(err)
	}
	p := fetch.Puller{Cache: &fetch.Cache{Dir: t.TempDir()}}
	for round := range 2 { // the second time the artifact is in the cache
		seen.reset()
		into := t.TempDir()
		folder, err := p.Pull(t.Context(), host+"/components/web@"+a.Digest(), openRoot(t, into), fetch.Limits{})
		want := map[string]string{"web/main.tf": "module", "shared/net/main.tf": "net"}
		if got := readTree(t, into); err != nil || folder != "web" || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v in %q, %v", got, folder, err)
		}
		if requests := len(seen.all()); (requests == 0) != (round == 1) {
			t.Errorf("round %d sent %d requests", round, requests)
		}
	}
}

// A build packs the modules of other places with the component. A runner that does not know them would fetch them again, so the
// manifest has a type that it refuses.
func TestModulesOfOtherPlacesAreInTheArtifact(t *testing.T) {
	repository := writeTree(t, map[string]string{"web/main.tf": "module", "shared/main.tf": "shared", "other/main.tf": "not called"})
	modules := writeTree(t, map[string]string{"modules.json": "{}", "0/main.tf": "fetched", "0/.git/HEAD": "commit", "0/.terraform/x": "cache"})
	a, err := artifact.PackModules(openRoot(t, repository), "web", []string{"shared"}, openRoot(t, modules), artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	host, _ := serveRegistry(t, t.TempDir())
	if _, err := artifact.Push(t.Context(), host+"/components/web", artifact.Access{}, a); err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	folder, err := fetch.Puller{}.Pull(t.Context(), host+"/components/web@"+a.Digest(), openRoot(t, into), fetch.Limits{})
	want := map[string]string{"web/main.tf": "module", "shared/main.tf": "shared", ".fairlead/modules.json": "{}", ".fairlead/0/main.tf": "fetched"}
	if got := readTree(t, into); err != nil || folder != "web" || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v in %q, %v", got, folder, err)
	}
	res, err := http.Get("http://" + host + "/v2/components/web/manifests/" + a.Digest())
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var manifest struct{ ArtifactType string }
	if err := json.NewDecoder(res.Body).Decode(&manifest); err != nil || manifest.ArtifactType != "application/vnd.fairlead.component.v3" {
		t.Errorf("the type is %q, %v: runners of older versions accept v1 and v2", manifest.ArtifactType, err)
	}

	// Only a build writes that folder: a source has none.
	plain, err := artifact.Pack(openRoot(t, writeTree(t, map[string]string{"main.tf": "module", ".fairlead/modules.json": "{}"})), artifact.Limits{})
	if err != nil || plain.Files() != 1 {
		t.Errorf("a source with the folder has %d files, %v", plain.Files(), err)
	}
	_, err = artifact.PackModules(openRoot(t, repository), "web", nil, openRoot(t, modules), artifact.Limits{Bytes: 10})
	wantCode(t, err, fairlead.KindInvalid, "source-too-large")
}

func TestInvalidSharedFoldersAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		files  map[string]string
		link   [2]string
		limits artifact.Limits
		code   fairlead.Code
	}{
		"link from one folder to the other": {link: [2]string{"../shared/x.json", "web/x.json"}, code: "source-link-out"},
		"files that are too large in total": {limits: artifact.Limits{Bytes: 10}, code: "source-too-large"},
		"too many files in total":           {limits: artifact.Limits{Entries: 2}, code: "source-too-many-entries"},
		"path in the app that is too deep":  {limits: artifact.Limits{Depth: 1}, code: "source-too-deep"},
		"names that differ only in case":    {files: map[string]string{"WEB/main.tf": ""}, code: "source-case-collision"},
	} {
		t.Run(name, func(t *testing.T) {
			app := writeTree(t, map[string]string{"web/main.tf": "module", "shared/main.tf": "shared", "shared/x.json": "{}"})
			shared := []string{"shared"}
			for file, content := range tc.files {
				write(t, filepath.Join(app, file), content)
				shared = append(shared, filepath.Dir(file))
			}
			if tc.link[0] != "" {
				symlink(t, tc.link[0], filepath.Join(app, tc.link[1]))
			}
			_, err := artifact.PackShared(openRoot(t, app), "web", shared, tc.limits)
			wantCode(t, err, fairlead.KindInvalid, tc.code)
		})
	}
}

// The error for a source that is too large names the largest files, not the file that
// exceeded the limit.
func TestTooLargeSourceNamesItsLargestFiles(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"a.zip": strings.Repeat("x", 300), "b/data.bin": strings.Repeat("x", 500), "c.tf": strings.Repeat("x", 200), "z.tf": "x", "main.tf": "x",
	})
	_, err := artifact.Pack(openRoot(t, dir), artifact.Limits{Bytes: 900})
	wantCode(t, err, fairlead.KindInvalid, "source-too-large")
	if want := `has 1002 B of files, the limit is 900 bytes; the largest: "b/data.bin" of 500 B, "a.zip" of 300 B, "c.tf" of 200 B`; !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The manifest names the folder in which the tool runs. A hostile manifest must not be able
// to name a folder outside the artifact.
func TestManifestWithAnOutsideFolderIsRefused(t *testing.T) {
	for folder, ok := range map[string]bool{
		"web": true, "live/eu/web": true, ".": true,
		"": false, "..": false, "../web": false, "/etc": false, "web/../..": false, "web/": false, "a\x00b": false, `a\b`: false, strings.Repeat("a/", 40) + "a": false,
	} {
		raw, err := json.Marshal(map[string]any{
			"schemaVersion": 2, "mediaType": tree.ManifestType, "artifactType": tree.SharedType, "annotations": map[string]string{tree.FolderAnnotation: folder},
			"layers": []any{map[string]any{"mediaType": tree.LayerType, "size": 1, "digest": tree.Digest(nil)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		layer, err := tree.ParseManifest(raw)
		if ok != (err == nil) || ok && layer.Folder != folder {
			t.Errorf("%q: %+v, %v", folder, layer, err)
		}
	}
}
