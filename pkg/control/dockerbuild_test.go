package control_test

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// withDockerfile returns the app shop whose component web has a Dockerfile in the app's folder.
func withDockerfile(settings string) string {
	return appOf("  web: {type: docker-build, source: ./web, " + settings + "}\n")
}

func digestOf(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

// buildFolder requests the build of web from a packed folder, runs it and publishes the version.
func (p *plane) buildFolder(src, folder, key string) (control.Build, control.Version) {
	p.t.Helper()
	var out []control.Build
	var v control.Version
	folders := map[string]string{"web": folder}
	p.must("build", func() (err error) { out, err = p.BuildApp(p.ctx, org, "shop", p.canonical(src), folders, key); return })
	p.work()
	jobs := map[string]fairlead.JobID{}
	if out[0].Job != nil {
		jobs["web"] = out[0].Job.ID
	}
	p.must("publish", func() (err error) {
		v, err = p.Publish(p.ctx, org, "shop", control.NewVersion{Config: p.canonical(src), Builds: jobs, Folders: folders})
		return
	})
	return out[0], v
}

func TestImageIsBuiltOnceOfAFolderAndSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := withBuilder(t)
		const plain = "options: {keep: 1}"
		first, v := p.buildFolder(withDockerfile(plain), digestOf("1"), "1")
		if first.Job == nil || v.Artifacts["web"] == "" || v.Builds["web"].Revision != digestOf("1") {
			t.Fatalf("the first build is %+v, the version has %+v", first, v)
		}
		for i, tc := range []struct {
			name, settings, folder string
			again                  bool
		}{
			{"the same", plain, digestOf("1"), false},
			{"another option of the type", "options: {keep: 2}", digestOf("1"), false},
			{"the default, written out", "build: {dockerfile: ./Dockerfile}", digestOf("1"), false},
			{"another folder", plain, digestOf("2"), true},
			{"another arg", "build: {args: {A: b}}", digestOf("1"), true},
			{"another value of the arg", "build: {args: {A: c}}", digestOf("1"), true},
			{"another target", "build: {target: small}", digestOf("1"), true},
			{"other platforms", "build: {platforms: [linux/arm64]}", digestOf("1"), true},
			{"another Dockerfile", "build: {dockerfile: other}", digestOf("1"), true},
			{"the first one again", plain, digestOf("1"), false},
			{"the arg again", "build: {args: {A: b}}", digestOf("1"), false},
		} {
			b, _ := p.buildFolder(withDockerfile(tc.settings), tc.folder, string(rune('a'+i)))
			if built := b.Job != nil; built != tc.again {
				t.Errorf("%s: built again is %t, want %t", tc.name, built, tc.again)
			}
		}
	})
}

// The build's job reads the packed folder and writes the image. The job of an install reads the image and writes its copy. No
// other repository is open to them.
func TestJobsUseOnlyTheRepositoriesOfTheirImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := withBuilder(t)
		var spec events.JobSpec
		var building control.JobRepositories
		p.stepFault = func(s events.JobSpec) stepFault {
			if s.Operation == "build" {
				spec = s
				var err error
				if building, err = p.JobRepositories(p.ctx, control.Holder{Job: s.Job, Epoch: s.Epoch}); err != nil {
					t.Error(err)
				}
			}
			return none
		}
		_, v := p.buildFolder(withDockerfile("build: {args: {A: b}}"), digestOf("1"), "1")
		if spec.Artifact == nil || *spec.Artifact != (events.ArtifactRef{Repository: "orgs/default/shop/web", Digest: digestOf("1")}) || spec.Build.Source != "." || spec.Build.Image.Args["A"] != "b" || spec.Build.Image.Dockerfile != "Dockerfile" {
			t.Errorf("the build's spec is %+v of %+v", spec.Build, spec.Artifact)
		}
		if !strings.HasPrefix(spec.Push, "images/default/app_") || !strings.HasSuffix(spec.Push, "/web") {
			t.Errorf("the build pushes to %s", spec.Push)
		}
		if len(building.Read) != 1 || building.Read[0] != "orgs/default/shop/web" || building.Write != spec.Push {
			t.Errorf("the build may use %+v", building)
		}
		if v.Artifacts["web"] == digestOf("1") {
			t.Error("the artifact of the version is the packed folder")
		}
		p.Images = true
		p.setRegistry("registry.type=control-plane")
		p.enrolAt("local")
		p.must("create install", func() error { // on the runner with the registry; without its name, the identifier would choose
			_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: "local", Inputs: secretPassword()}, "create")
			return err
		})
		own, jobs := "", 0
		p.stepFault = func(s events.JobSpec) stepFault {
			jobs++
			if s.Registry == nil || s.Artifact == nil || s.Artifact.Repository != spec.Push || s.Artifact.Digest != v.Artifacts["web"] {
				t.Errorf("the %s gets the image %+v and the registry %+v", s.Operation, s.Artifact, s.Registry)
				return none
			}
			own = s.Registry.Repository
			may, err := p.ImageRepositories(p.ctx, control.Holder{Job: s.Job, Epoch: s.Epoch})
			want := control.JobRepositories{Read: []string{own, strings.TrimSuffix(own, "/web") + "/bundle", spec.Push}}
			if s.Operation == "apply" {
				want.Write = own
			}
			if err != nil || !reflect.DeepEqual(may, want) {
				t.Errorf("the tool of the %s may use %+v, %v; want %+v", s.Operation, may, err, want)
			}
			return none
		}
		p.expect(p.deployed(), deployment.Succeeded, "web=applied")
		if jobs != 2 || own == spec.Push {
			t.Errorf("%d jobs; the copy is in %s", jobs, own)
		}
	})
}

func TestBuildOfAFolderNeedsExactlyItsFolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		for name, tc := range map[string]struct {
			folders map[string]string
			want    fairlead.Code
		}{
			"no folder":                {nil, fairlead.CodeArtifactMissing},
			"no digest":                {map[string]string{"web": "latest"}, fairlead.CodeArtifactMissing},
			"of another component too": {map[string]string{"web": digestOf("1"), "api": digestOf("1")}, fairlead.CodeArtifactUnknown},
		} {
			if _, err := p.BuildApp(p.ctx, org, "shop", p.canonical(withDockerfile("options: {keep: 1}")), tc.folders, name); fairlead.CodeOf(err) != tc.want {
				t.Errorf("%s: %v, want %s", name, err, tc.want)
			}
		}
	})
}

// A build runner that reports another folder than it got would make a later build of that folder unnecessary.
func TestBuildThatNamesAnotherFolderIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := withBuilder(t)
		p.rebuilt = func(s events.JobSpec, b *control.Built) {
			b.Revision = digestOf("2")
			b.Statement = p.statement(s, *b)
		}
		var refusal error
		p.finished = func(err error) bool { refusal = err; return err != nil }
		p.must("build", func() error {
			_, err := p.BuildApp(p.ctx, org, "shop", p.canonical(withDockerfile("options: {keep: 1}")), map[string]string{"web": digestOf("1")}, "1")
			return err
		})
		p.work()
		if fairlead.CodeOf(refusal) != fairlead.CodeProvenanceRefused {
			t.Errorf("the report is answered with %v", refusal)
		}
	})
}
