package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// release is a release that is being built.
type release struct {
	version string
	folder  string   // of the files
	archs   []string // as Go names them
	tofu    string   // folder with an OpenTofu for each architecture; "": build them
	signer  *signer  // nil: nothing is signed
	bundles []bundle
	images  []variant
	log     io.Writer
	run     func(ctx context.Context, env []string, name string, args ...string) (string, error)
}

// A program is one file of an archive that the go command builds.
type program struct {
	path    string // in the archive
	pkg     string
	tags    string
	version string // the variable that has the version
}

// A bundle is an archive for each system and architecture.
type bundle struct {
	name     string
	systems  []string // as Go names them
	programs []program
	files    []string // of the checkout, by their name in the archive
}

const module = "github.com/fairlead/fairlead/"

// allBundles returns the archives of a release. The programs of an archive find each other in its folder.
func allBundles() []bundle {
	// An agent looks for these beside itself.
	beside := []program{
		{"fairlead-step", module + "runner/fairlead-step", "", "main.version"},
		{"plugins/kubernetes", module + "runner/kubernetes", "", "main.Version"},
		{"plugins/images", module + "runner/images", "", "main.Version"},
	}
	return []bundle{
		{name: "fairlead", systems: []string{"linux", "darwin"}, files: []string{"LICENSE", "README.md"}, programs: append([]program{
			{"fairlead", module + "cmd/fairlead", "light", "main.version"},
			{"fairlead-server", module + "cmd/fairlead", "clusters", "main.version"},
			{"fairlead-registry", module + "cmd/fairlead-registry", "", ""},
		}, beside...)},
		{name: "fairlead-runner", systems: []string{"linux"}, files: []string{"LICENSE", "infra/systemd/environment", "infra/systemd/fairlead-runner.service", "infra/systemd/fairlead-runner.sysusers"}, programs: append([]program{
			{"fairlead-runner", module + "runner", "clusters", "main.version"},
		}, beside...)},
	}
}

// A variant is an image of the runner: the flag of its build, and the suffix of its name.
type variant struct{ flag, suffix string }

// allImages returns the images of a release: without and with a shell.
func allImages() []variant { return []variant{{"", ""}, {"-shell", "-shell"}} }

// build writes all files of the release.
func (r release) build(ctx context.Context) error {
	work, err := os.MkdirTemp("", "fairlead-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // a folder that stays costs only space
	if err := os.MkdirAll(r.folder, 0o755); err != nil {
		return err
	}
	for _, b := range r.bundles {
		for _, system := range b.systems {
			for _, arch := range r.archs {
				if err := r.archive(ctx, b, platform{system, arch}, filepath.Join(work, b.name+"-"+system+"-"+arch)); err != nil {
					return err
				}
			}
		}
	}
	for _, v := range r.images {
		if err := r.image(ctx, v.flag, v.suffix, filepath.Join(work, "image")); err != nil {
			return err
		}
	}
	if err := r.chart(); err != nil {
		return err
	}
	if err := r.template(ctx, filepath.Join(work, "infra")); err != nil {
		return err
	}
	return r.checksums(ctx)
}

// A platform is a system and an architecture, as Go names them.
type platform struct{ system, arch string }

// archive builds the programs of a bundle for a platform, and packs them with its files.
func (r release) archive(ctx context.Context, b bundle, p platform, work string) error {
	name := fmt.Sprintf("%s_%s_%s_%s", b.name, r.version, p.system, p.arch)
	r.say("Building %s", name)
	var content []packed
	for _, built := range b.programs {
		file := filepath.Join(work, filepath.FromSlash(built.path))
		if err := r.compile(ctx, built, p, file); err != nil {
			return err
		}
		content = append(content, packed{path: name + "/" + built.path, mode: 0o755, local: file})
	}
	for _, file := range b.files {
		content = append(content, packed{path: name + "/" + filepath.Base(file), mode: 0o644, local: file})
	}
	target := filepath.Join(r.folder, name+".tar.gz")
	if err := pack(target, content); err != nil {
		return err
	}
	return r.describeArchive(target, name)
}

// compile builds a program as the build of the images does: without paths, times and revision of the checkout.
func (r release) compile(ctx context.Context, built program, p platform, file string) error {
	flags := "-s -w -buildid="
	if built.version != "" {
		flags += " -X " + built.version + "=" + r.version
	}
	_, err := r.run(ctx, []string{"GOOS=" + p.system, "GOARCH=" + p.arch, "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS="},
		"go", "build", "-trimpath", "-buildvcs=false", "-tags="+built.tags, "-ldflags="+flags, "-o", file, built.pkg)
	return err
}

// chartFolder is the folder of the chart in the checkout.
const chartFolder = "infra/charts/fairlead-runner"

// chart packs the chart with the version of the release.
func (r release) chart() error {
	r.say("Packing the chart")
	var content []packed
	err := filepath.WalkDir(chartFolder, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		p := packed{path: "fairlead-runner/" + filepath.ToSlash(strings.TrimPrefix(file, chartFolder+string(filepath.Separator))), mode: 0o644, local: file}
		if d.Name() == "Chart.yaml" {
			if p.data, err = r.versioned(file); err != nil {
				return err
			}
		}
		content = append(content, p)
		return nil
	})
	if err != nil {
		return err
	}
	return pack(filepath.Join(r.folder, "fairlead-runner-"+strings.TrimPrefix(r.version, "v")+".tgz"), content)
}

// versioned returns a Chart.yaml with the version of the release in place of its own.
func (r release) versioned(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "version: ") })
	if at < 0 {
		return nil, fmt.Errorf("%s has no line with its version", file)
	}
	lines[at] = "version: " + strings.TrimPrefix(r.version, "v")
	lines = slices.Insert(lines, at+1, "appVersion: "+r.version)
	return []byte(strings.Join(lines, "\n")), nil
}

// templateFile is the template for customers' stacks.
const templateFile = "fairlead-runner.yaml"

// template synthesizes the template for customers' stacks. The CDK needs Node.
func (r release) template(ctx context.Context, work string) error {
	r.say("Synthesizing %s", templateFile)
	env := []string{"CDK_OUTDIR=" + work, `CDK_CONTEXT_JSON={"stage":"prod","functions":"infra/control/testdata/functions"}`, "GOWORK=off", "CGO_ENABLED=0"}
	if _, err := r.run(ctx, env, "go", "run", "./infra"); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(work, templateFile))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.folder, templateFile), text, 0o644)
}

// The list of checksums, and its signature.
const (
	sumsFile      = "checksums.txt"
	signatureFile = "checksums.txt.sig"
	publicFile    = "fairlead.pub"
)

// checksums writes the SHA-256 of each file, in the form that sha256sum reads, and signs the list.
func (r release) checksums(ctx context.Context) error {
	files, err := os.ReadDir(r.folder)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, f := range files { // in the order of their names
		sum, err := sumOf(filepath.Join(r.folder, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sum, f.Name())
	}
	if err := os.WriteFile(filepath.Join(r.folder, sumsFile), []byte(list.String()), 0o644); err != nil {
		return err
	}
	if r.signer == nil {
		r.say("The release is in %s. It has no signature, because no key was given: set KEY.", r.folder)
		return nil
	}
	signature, err := r.signer.sign(ctx, []byte(list.String()))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.folder, signatureFile), []byte(signature+"\n"), 0o644); err != nil {
		return err
	}
	r.say("The release is in %s.", r.folder)
	return os.WriteFile(filepath.Join(r.folder, publicFile), r.signer.public, 0o644)
}

func sumOf(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}

func (r release) say(format string, args ...any) { fmt.Fprintf(r.log, format+"\n", args...) }
