package appspec_test

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairlead/fairlead/pkg/appspec"
)

func dockerBuild(components string) string {
	return "fairlead: v1\nname: shop\ncomponents:\n" + components
}

var goBase = "registry.example.com/static@sha256:" + strings.Repeat("a", 64)

func TestImageBuildIsCompleteInItsCanonicalForm(t *testing.T) {
	for _, tc := range []struct {
		settings string
		want     appspec.ImageBuild
	}{
		{"", appspec.ImageBuild{Dockerfile: "Dockerfile"}},
		{", build: null", appspec.ImageBuild{Dockerfile: "Dockerfile"}},
		{", build: {dockerfile: ./deploy/../Dockerfile}", appspec.ImageBuild{Dockerfile: "Dockerfile"}},
		{", build: {dockerfile: deploy/web, target: small, platforms: [linux/arm64, linux/amd64], args: {A: b, B: ''}}",
			appspec.ImageBuild{Dockerfile: "deploy/web", Target: "small", Platforms: []string{"linux/amd64", "linux/arm64"}, Args: map[string]string{"A": "b", "B": ""}}},
		{", build: {go: {package: ./cmd/../cmd/web, base: '" + goBase + "'}, platforms: [linux/arm64]}",
			appspec.ImageBuild{Platforms: []string{"linux/arm64"}, Go: &appspec.GoProgram{Package: "cmd/web", Base: goBase}}},
		{", build: {go: {base: '" + goBase + "'}}",
			appspec.ImageBuild{Go: &appspec.GoProgram{Package: ".", Base: goBase}}},
	} {
		app, problems := appspec.Parse("app.yaml", []byte(dockerBuild("  web: {type: docker-build, source: ./web"+tc.settings+"}\n")))
		if problems != nil {
			t.Fatalf("%s: %v", tc.settings, problems)
		}
		c := app.Components[0]
		if !reflect.DeepEqual(*c.Build, tc.want) || !c.Built() || !c.InFolder() || c.From().Kind != appspec.OriginFolder {
			t.Errorf("%s: %+v of %+v", tc.settings, c.Build, c.From())
		}
		text, err := app.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := appspec.FromCanonical(text); err != nil || !reflect.DeepEqual(app, again) {
			t.Errorf("%s: the canonical form is read as %+v, %v", tc.settings, again, err)
		}
	}
}

func TestProblemsOfImageBuilds(t *testing.T) {
	for _, tc := range []struct{ component, want string }{
		{"type: script, build: {target: x}", "4:31 not-an-image"},
		{"type: docker-build, build: {dockerfile: ../Dockerfile}", "4:44 invalid-dockerfile"},
		{"type: docker-build, build: {dockerfile: /etc/passwd}", "4:44 invalid-dockerfile"},
		{"type: docker-build, build: {dockerfile: .}", "4:44 invalid-dockerfile"},
		{"type: docker-build, build: {target: --push}", "4:44 invalid-target"},
		{"type: docker-build, build: {platforms: [linux]}", "4:44 invalid-platform"},
		{"type: docker-build, build: {platforms: ['linux/amd64,type=registry']}", "4:44 invalid-platform"},
		{"type: docker-build, build: {platforms: [linux/amd64, linux/amd64]}", "4:44 duplicate-name"},
		{"type: docker-build, build: {args: {'A B': c}}", "4:51 invalid-name"},
		{"type: docker-build, build: {args: {A: '${inputs.x}'}}", "4:51 reference-in-constant"},
		{"type: docker-build, build: {args: {A: 1}}", "4:51 wrong-type"},
		{"type: docker-build, build: {args: {A: " + strings.Repeat("a", 5000) + "}}", "4:44 too-long"},
		{"type: docker-build, build: {file: x}", "4:44 unknown-field"},
		{"type: docker-build, build: {go: {}}", "4:44 missing-field"},
		{"type: docker-build, build: {go: {base: static}}", "4:44 image-not-by-digest"},
		{"type: docker-build, build: {go: {base: 'registry.example.com/static:1'}}", "4:44 image-not-by-digest"},
		{"type: docker-build, build: {go: {package: ../web, base: '" + goBase + "'}}", "4:44 invalid-package"},
		{"type: docker-build, build: {go: {package: /web, base: '" + goBase + "'}}", "4:44 invalid-package"},
		{"type: docker-build, build: {go: {base: '" + goBase + "'}, dockerfile: Dockerfile}", "4:44 field-of-dockerfile"},
		{"type: docker-build, build: {go: {base: '" + goBase + "'}, args: {A: b}}", "4:44 field-of-dockerfile"},
		{"type: docker-build, logins: {'https://ghcr.io/': GHCR}", "4:36 invalid-host"},
		{"type: docker-build, logins: {ghcr.io: 'user:password'}", "4:36 invalid-name"},
		{"type: docker-build, logins: {ghcr.io: ''}", "4:36 invalid-name"},
		{"type: terraform, logins: {ghcr.io: GHCR}", "4:33 no-build"},
		{"type: docker-build, options: {keep: 101}", "4:46 wrong-type"},
		{"type: docker-build, options: {keep: many}", "4:46 wrong-type"},
		{"type: docker-build, options: {kept: 1}", "4:46 unknown-option"},
		{"type: docker-build, chart: {url: 'oci://h.example.com/x', version: 1.0.0}", "4:36 not-a-chart"},
	} {
		_, problems := appspec.Parse("app.yaml", []byte(dockerBuild("  web: {source: ./web, "+tc.component+"}\n")))
		if problems == nil || !strings.Contains(problems.Error(), strings.SplitN(tc.want, " ", 2)[1]) {
			t.Errorf("%.100s: %v, want %s", tc.component, problems, tc.want)
			continue
		}
		if p := problems[0]; p.File != "app.yaml" || p.Line != 4 || p.Column < 20 {
			t.Errorf("%.100s: the problem is at %s:%d:%d", tc.component, p.File, p.Line, p.Column)
		}
	}
}

func TestFolderNeedsItsDockerfile(t *testing.T) {
	app := dockerBuild("  web:\n    type: docker-build\n    source: ./web\n    build: {dockerfile: deploy/Dockerfile}\n")
	files := fstest.MapFS{"app.yaml": {Data: []byte(app)}, "web/Dockerfile": {Data: []byte("FROM scratch\n")}, "web/deploy/x": {}}
	if _, problems := appspec.Load(files); len(problems) != 1 || problems[0].Code != "missing-source" || problems[0].Line != 6 || !strings.Contains(problems[0].Message, "deploy/Dockerfile") {
		t.Errorf("without it: %v", problems)
	}
	files["web/deploy/Dockerfile"] = files["web/Dockerfile"]
	if _, problems := appspec.Load(files); len(problems) > 0 {
		t.Errorf("with it: %v", problems)
	}
	c := appspec.Component{Name: "web", Type: "docker-build", Source: "web", Build: &appspec.ImageBuild{Dockerfile: "other"}}
	if _, problems := appspec.CheckSource(files, c); len(problems) != 1 {
		t.Errorf("what a build fetched, without it: %v", problems)
	}
}

func TestSameBuildComparesAllSettings(t *testing.T) {
	base := appspec.Component{Type: "docker-build", Source: "web", Build: &appspec.ImageBuild{Dockerfile: "Dockerfile", Args: map[string]string{"A": "b"}}}
	moved := base
	moved.Source = "other"
	if !base.SameBuild(base) || !base.SameBuild(moved) {
		t.Error("the same settings are another build, or the folder's name counts")
	}
	for i, change := range []func(*appspec.ImageBuild){
		func(b *appspec.ImageBuild) { b.Dockerfile = "other" },
		func(b *appspec.ImageBuild) { b.Target = "t" },
		func(b *appspec.ImageBuild) { b.Platforms = []string{"linux/arm64"} },
		func(b *appspec.ImageBuild) { b.Args = map[string]string{"A": "c"} },
		func(b *appspec.ImageBuild) { b.Args = nil },
	} {
		other := base
		b := *base.Build
		change(&b)
		other.Build = &b
		if base.SameBuild(other) {
			t.Errorf("change %d: %+v is the same build", i, b)
		}
	}
	git := base
	git.Git = &appspec.Git{URL: "https://git.example.com/x", Ref: "main"}
	if git.SameBuild(git) {
		t.Error("a branch is the same at each build")
	}
}

func TestExampleOfTheReferencePageIsValid(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/docker-build.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```yaml\n")
	src, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the page has no example")
	}
	app, problems := appspec.Parse("app.yaml", []byte(src))
	if problems != nil {
		t.Fatal(problems)
	}
	if b := app.Components[1].Build; b == nil || b.Dockerfile != "deploy/Dockerfile" || b.Target != "small" || len(b.Platforms) != 2 || len(b.Args) != 1 {
		t.Errorf("the example has the build %+v", b)
	}
}

func TestFolderNeedsItsGoProgram(t *testing.T) {
	app := dockerBuild("  web:\n    type: docker-build\n    source: ./web\n    build: {go: {package: cmd/web, base: '" + goBase + "'}}\n")
	files := fstest.MapFS{"app.yaml": {Data: []byte(app)}, "web/go.mod": {Data: []byte("module x\n")}, "web/main.go": {}}
	if _, problems := appspec.Load(files); len(problems) != 1 || problems[0].Code != "missing-source" || problems[0].Line != 6 || !strings.Contains(problems[0].Message, "cmd/web") {
		t.Errorf("without the folder of the package: %v", problems)
	}
	files["web/cmd/web/main.go"] = &fstest.MapFile{}
	if _, problems := appspec.Load(files); problems != nil {
		t.Error(problems)
	}
	delete(files, "web/go.mod")
	if _, problems := appspec.Load(files); len(problems) != 1 || !strings.Contains(problems[0].Message, "go.mod") {
		t.Errorf("without go.mod: %v", problems)
	}
}

// A login changes no image: another name of its secret builds nothing again.
func TestLoginsAreNoPartOfABuild(t *testing.T) {
	parse := func(fields string) appspec.Component {
		t.Helper()
		app, problems := appspec.Parse("app.yaml", []byte(dockerBuild("  web: {type: docker-build, source: ./web, "+fields+"}\n")))
		if problems != nil {
			t.Fatal(problems)
		}
		return app.Components[0]
	}
	one, two, other := parse("logins: {ghcr.io: A}"), parse("logins: {ghcr.io: B}"), parse("build: {target: x}, logins: {ghcr.io: A}")
	if !one.SameBuild(two) || one.SameBuild(other) {
		t.Errorf("another login: %t, another target: %t", one.SameBuild(two), one.SameBuild(other))
	}
}
