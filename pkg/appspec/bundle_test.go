package appspec_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/bundle"
	types "github.com/fairlead/fairlead/pkg/component"
)

const closed = `fairlead: v1
name: shop
bundle:
  images:
    exporter: exporter:1
inputs:
  tag: {default: "1.27"}
  size: {type: number}
  extra: {type: bool, default: true}
  hosts: {type: list(string)}
components:
  web:
    type: helm
    source: web
    options: {namespace: "${inputs.tag}"}
    vars:
      image: nginx:${inputs.tag}
      api: ${components.api.outputs.reference}
      exporter: ${components.bundle.outputs.named.exporter}
      host: ${components.names.outputs.host}
      replicas: ${inputs.size}
      extra: ${inputs.extra}
      hosts: ${inputs.hosts}
      install: ${install.name}
  base: {type: manifest, source: base}
  api: {type: image, source: api}
  names: {type: script, source: names}
`

// folderOf returns the app's folder, without a lock.
func folderOf(text string) fstest.MapFS {
	return fstest.MapFS{
		"app.yaml":                {Data: []byte(text)},
		"web/Chart.yaml":          {Data: []byte("name: web\n")},
		"web/templates/job.yaml":  {Data: []byte("kind: Job\n")},
		"base/objects.yaml":       {Data: []byte("kind: Pod\n")},
		"api/image.yaml":          {Data: []byte("image: api:1\n")},
		"names/run":               {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
		"names/not-a-source.yaml": {Data: []byte("a: b\n")},
	}
}

// lockOf writes the lock of the app in the folder, as the CLI does.
func lockOf(t *testing.T, fsys fstest.MapFS) {
	t.Helper()
	app, problems := appspec.LoadUnlocked(fsys)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	l := bundle.Lock{Named: app.Bundle.Images, Sources: map[string]string{}}
	for _, reference := range []string{"docker.io/library/exporter:1", "docker.io/library/nginx:1.27"} {
		l.Images = append(l.Images, bundle.Image{Reference: reference, Digest: digest, MediaType: bundle.IndexType, Manifest: 1, Bytes: 1})
	}
	for _, c := range app.Locked() {
		var err error
		if l.Sources[c.Name], err = appspec.RenderedDigest(fsys, app, c); err != nil {
			t.Fatal(err)
		}
	}
	fsys[appspec.LockFile] = &fstest.MapFile{Data: l.Encode()}
}

// A closed app is an app with one more component, so nothing else needs to know that it is closed.
func TestClosedAppIsComponentsOnly(t *testing.T) {
	fsys := folderOf(closed)
	lockOf(t, fsys)
	app, problems := appspec.Load(fsys)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	stored := canonical(t, app)
	again, err := appspec.FromCanonical([]byte(stored))
	if err != nil || canonical(t, again) != stored || !again.Closed() {
		t.Fatalf("the canonical form is read as another app: %v", err)
	}
	if again.Bundle.Images["exporter"] != "docker.io/library/exporter:1" {
		t.Errorf("the images are %v", again.Bundle.Images)
	}
	of, ok := again.Component(types.Bundle)
	if !ok || of.Type != types.Bundle || of.Source != bundle.Folder || !again.CopiesBundle(of) {
		t.Fatalf("the component is %+v", of)
	}
	for name, uses := range map[string]bool{"web": true, "base": true, "api": true, "names": false} {
		c, _ := again.Component(name)
		if got := strings.Contains(strings.Join(c.DependsOn, " "), types.Bundle); got != uses {
			t.Errorf("%s needs %q", name, c.DependsOn)
		}
		if got := c.Options[types.OptionImages].String(); uses && got != `"${components.bundle.outputs.images}"` || !uses && len(c.Options) > 0 {
			t.Errorf("%s has the options %v", name, c.Options)
		}
	}
	open, problems := appspec.Load(folderOf(strings.NewReplacer("bundle:\n  images:\n    exporter: exporter:1\n", "", "      exporter: ${components.bundle.outputs.named.exporter}\n", "").Replace(closed)))
	if len(problems) > 0 || open.Closed() || len(open.Components) != 4 {
		t.Errorf("an app that is not closed: %v", problems)
	}
}

func TestProblemsOfClosedAppsHaveTheirPlace(t *testing.T) {
	edit := func(old, now string) func(*testing.T, fstest.MapFS) {
		return func(t *testing.T, fsys fstest.MapFS) {
			text := string(fsys["app.yaml"].Data)
			if !strings.Contains(text, old) {
				t.Fatalf("the app has no %q", old)
			}
			fsys["app.yaml"] = &fstest.MapFile{Data: []byte(strings.Replace(text, old, now, 1))}
		}
	}
	file := func(name, text string) func(*testing.T, fstest.MapFS) {
		return func(_ *testing.T, fsys fstest.MapFS) { fsys[name] = &fstest.MapFile{Data: []byte(text)} }
	}
	for name, tc := range map[string]struct {
		change func(*testing.T, fstest.MapFS)
		want   string // "": no problem
	}{
		"nothing changed":             {func(*testing.T, fstest.MapFS) {}, ""},
		"a file without images":       {file("names/run2", "x"), ""},
		"no lock":                     {func(_ *testing.T, fsys fstest.MapFS) { delete(fsys, appspec.LockFile) }, "app.yaml:4:3: the app is closed and has no lock"},
		"a damaged lock":              {file(appspec.LockFile, "lock: v1\nimages:\n<<<<<<< ours\n"), "bundle/images.lock:3:1: "},
		"a new file of a chart":       {file("web/templates/new.yaml", "kind: Pod\n"), `app.yaml:12:3: the files or values of component "web" have changed since the lock was written [stale-lock]`},
		"a changed object":            {file("base/objects.yaml", "kind: Job\n"), "app.yaml:25:3: the files or values of component"},
		"another image of a type":     {file("api/image.yaml", "image: api:2\n"), "app.yaml:26:3: the files or values of component"},
		"another default":             {edit(`default: "1.27"`, `default: "1.28"`), "app.yaml:12:3: the files or values of component"},
		"another value":               {edit("nginx:${inputs.tag}", "redis:${inputs.tag}"), "app.yaml:12:3: the files or values of component"},
		"another image of the file":   {edit("exporter: exporter:1", "exporter: exporter:2"), "app.yaml:5:5: the lock does not have the image \"exporter\" as it is here [stale-lock]"},
		"an image that is gone":       {edit("    exporter: exporter:1\n", "    other: exporter:1\n"), "app.yaml:5:5: the lock does not have the image \"other\""},
		"a component that is gone":    {edit("  base: {type: manifest, source: base}\n", ""), "app.yaml:4:3: the lock has images of the component \"base\""},
		"an invalid image":            {edit("exporter: exporter:1", "exporter: 'Exporter:1'"), `app.yaml:5:5: "Exporter:1" is not the reference of an image: the name of its repository is not valid [invalid-image]`},
		"an invalid name":             {edit("exporter: exporter:1", "a.b: exporter:1"), `app.yaml:5:5: "a.b" is not a valid name of an image [invalid-name]`},
		"a component with the name":   {edit("  names: {", "  bundle: {"), `app.yaml:27:3: the name "bundle" is that of the component`},
		"a component of the type":     {edit("type: script", "type: bundle"), `app.yaml:27:17: "bundle" is not a type that app.yaml can name [unknown-type]`},
		"an option of a closed app":   {edit("{namespace: ", "{images: {}, namespace: "), "app.yaml:15:15: a closed app sets the option images itself [reserved-option]"},
		"an image as a list":          {edit("exporter: exporter:1", "exporter: [exporter]"), "app.yaml:5:15: bundle.images.exporter must be a string"},
		"an input that is not a lock": {edit("size: {type: number}", "size: {type: number, default: 3}"), "app.yaml:12:3: the files or values of component"},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := folderOf(closed)
			lockOf(t, fsys)
			tc.change(t, fsys)
			_, problems := appspec.Load(fsys)
			if tc.want == "" && len(problems) > 0 || tc.want != "" && !strings.Contains(problems.Error(), tc.want) {
				t.Errorf("got\n%v\nwant\n%s", problems, tc.want)
			}
		})
	}
}

// A component whose folder is that of the app has the lock in it.
func TestLockDoesNotMakeItselfStale(t *testing.T) {
	fsys := fstest.MapFS{"app.yaml": {Data: []byte("fairlead: v1\nname: shop\nbundle: {}\ncomponents:\n  base: {type: manifest, source: .}\n")}}
	lockOf(t, fsys)
	app, problems := appspec.LoadUnlocked(fsys)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	base, _ := app.Component("base")
	before, err := appspec.RenderedDigest(fsys, app, base)
	if err != nil {
		t.Fatal(err)
	}
	delete(fsys, appspec.LockFile)
	if after, err := appspec.RenderedDigest(fsys, app, base); err != nil || after != before {
		t.Errorf("without the lock the digest is %s, with it %s (%v)", after, before, err)
	}
}

// A version that was not made from a folder cannot be closed in name only.
func TestClosedVersionHasItsOptions(t *testing.T) {
	app, problems := appspec.Parse("app.yaml", []byte(closed))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	stored := canonical(t, app)
	for name, change := range map[string][2]string{
		"without the images":              {`"images":"${components.bundle.outputs.images}",`, ""},
		"with other images":               {"${components.bundle.outputs.images}", "${components.names.outputs.images}"},
		"with another registry":           {"${components.bundle.outputs.registry}", "registry.example.com/"},
		"with the lock of another folder": {`"source":"bundle"`, `"source":"web"`},
		"without the component":           {`{"name":"bundle","type":"bundle","source":"bundle"},`, ""},
		"closed without a bundle":         {`"bundle":{"images":{"exporter":"docker.io/library/exporter:1"}},`, ""},
	} {
		text := strings.Replace(stored, change[0], change[1], 1)
		if text == stored {
			t.Fatalf("%s: %s has no %s", name, stored, change[0])
		}
		if _, err := appspec.FromCanonical([]byte(text)); err == nil {
			t.Errorf("an app %s is accepted", name)
		}
	}
}

// A chart is rendered for its images with what the app knows: constants and defaults, and both values of each switch.
func TestAssumedValuesAreDefaultsAndPlaceholders(t *testing.T) {
	app, problems := appspec.Parse("app.yaml", []byte(closed))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	web, _ := app.Component("web")
	all, err := app.Assume(web)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d renderings, %v", len(all), err)
	}
	for i, extra := range []string{"true", "false"} {
		got, err := json.Marshal(all[i])
		want := `{"vars":{"api":"fairlead-image","exporter":"fairlead-image","extra":` + extra + `,"host":"fairlead-unknown","hosts":[],"image":"nginx:1.27","install":"fairlead-unknown","replicas":1},"options":{"namespace":"1.27"}}`
		if err != nil || string(got) != want {
			t.Errorf("rendering %d has\n%s\nwant\n%s", i, got, want)
		}
	}
}

// A script that runs in an image of its own runs in the copy, so the customer's nodes pull it from the install's registry.
func TestScriptOfAClosedAppRunsInTheCopy(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	text := `fairlead: v1
name: shop
bundle: {}
components:
  seed: {type: script, source: names, image: "quay.io/acme/seed` + digest + `"}
  tools: {type: image, source: api}
  own: {type: script, source: names, image: "${components.tools.outputs.reference}"}
actions:
  check: {type: script, source: names, image: "docker.io/acme/check` + digest + `"}
`
	app, problems := appspec.LoadUnlocked(folderOf(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	images := map[string]string{"seed": "${components.bundle.outputs.named.image-of-seed}", "own": "${components.tools.outputs.reference}",
		"actions.check": "${components.bundle.outputs.named.image-of-action-check}"}
	for _, part := range app.Parts() {
		if got := part.Image.String(); part.HasImage() && got != `"`+images[part.Name]+`"` {
			t.Errorf("the image of %s is %s", part.Name, got)
		}
	}
	if got := app.Bundle.Images["image-of-seed"]; got != "quay.io/acme/seed"+digest || app.ImageUser("image-of-seed") != "seed" || app.ImageUser("image-of-action-check") != "actions.check" {
		t.Errorf("the images of the bundle are %v, used by %s and %s", app.Bundle.Images, app.ImageUser("image-of-seed"), app.ImageUser("image-of-action-check"))
	}
	if seed, _ := app.Component("seed"); len(seed.DependsOn) != 1 || seed.DependsOn[0] != types.Bundle {
		t.Errorf("seed runs after %v", seed.DependsOn)
	}
	canonical, err := app.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	again, err := appspec.FromCanonical(canonical)
	if err != nil {
		t.Fatal(err)
	}
	if twice, err := again.Canonical(); err != nil || string(twice) != string(canonical) {
		t.Errorf("read again, the app is\n%s\nand not\n%s (%v)", twice, canonical, err)
	}
	other := strings.Replace(string(canonical), "${components.bundle.outputs.named.image-of-seed}", "quay.io/acme/seed"+digest, 1)
	if _, err := appspec.FromCanonical(json.RawMessage(other)); err == nil {
		t.Error("a published app has a script that runs in an image of another registry")
	}
	if _, problems := appspec.LoadUnlocked(folderOf(strings.Replace(text, "bundle: {}", "bundle: {images: {image-of-seed: 'a:1'}}", 1))); len(problems) != 1 || problems[0].Code != "reserved-name" || problems[0].Line != 3 {
		t.Errorf("an image with the name of a script's: %v", problems)
	}
}
