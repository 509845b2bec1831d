package awstest

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/imagebuildtest"
	"github.com/fairlead/fairlead/tools/program"
)

// loginsTemplate has the resources of the control plane's stack that the setting buildRunnerSecrets changes, with the ARN shownLogin.
const (
	loginsTemplate = "../../../infra/control/testdata/logins.template.json"
	shownLogin     = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:ghcr-AbCdEf"
)

// The vendor's build runner is the image with Go, and has the login of a private registry from Secrets Manager, by its role. It
// builds a Go program on a private base image, without CodeBuild, and an install in a customer's account gets a copy with the same
// digest. The login is in no log. A build that names no login is refused by the registry, and reads no secret.
func TestImageWithGoBuildsForAnInstall(t *testing.T) {
	skipIfShort(t)
	if os.Geteuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("SKIPPED: only root on Linux can change the root folder, as a container does")
	}
	needTofu(t)
	v := newVendor(t)
	defer v.close()
	v.BuildRunner = "build"
	v.ok("deploy with a build runner", v.Do(t.Context()))
	const password = "5ecret-of-the-registry"
	private := imagebuildtest.NewPrivate(t, "reader", password)
	r := v.stackResolver(v.resourcesWithLogin(`{"login":"reader:` + password + `"}`))
	stop := v.startContainer(r, "BuildRunnerTask", v.inImage(t, makeGoImage(t), commandOf(r, "BuildRunnerTask")...))
	defer stop()
	v.cli("runner", "check", "build", "--timeout", "1m")
	role := r.attribute("BuildRunnerRole", "Arn")

	app := filepath.Join(t.TempDir(), "app")
	v.ok("copy the example", os.CopyFS(app, os.DirFS("../../../examples/go-image")))
	base := imagebuildtest.Base(t, private.Host+"/static", &authn.Basic{Username: "reader", Password: password}, "linux/amd64", "linux/arm64")
	file := filepath.Join(app, "app.yaml")
	text, err := os.ReadFile(file)
	v.ok("read app.yaml", err)
	const shownBase = "registry.example.com/static@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	text = bytes.Replace(text, []byte(shownBase), []byte(base), 1)
	v.ok("name the base image", os.WriteFile(file, text, 0o644))
	if out, err := v.command(t.Context(), "app", "apply", app).CombinedOutput(); err == nil || !strings.Contains(string(out), private.Host) {
		t.Errorf("a build without the login of its base image: %v\n%s", err, out)
	}
	if n := v.guard.Uses(role, "secretsmanager:GetSecretValue"); n > 0 {
		t.Errorf("a build that names no login read %d secrets", n)
	}
	text = bytes.Replace(text, []byte("    source: ./web\n"), []byte("    source: ./web\n    logins:\n      "+private.Host+": GHCR_LOGIN\n"), 1)
	v.ok("name the login", os.WriteFile(file, text, 0o644))
	v.cli("app", "apply", app)
	if v.guard.Uses(role, "secretsmanager:GetSecretValue") == 0 {
		t.Error("the build read no secret with the role of the build runner")
	}
	p := ask[wire.Provenance](v.world, "app", "provenance", "go-image", "web")
	if built := v.registry.with(p.Artifact); len(built) != 1 || !strings.HasSuffix(built[0], "/web/built") {
		t.Errorf("the image is in the repositories %q, want only that of the builds", built)
	}
	if log := string(v.cli("job", "logs", p.BuildJob)); strings.Contains(log, password) {
		t.Errorf("the log has the login:\n%s", log)
	}

	v.cli("install", "create", "acme", "--app", "go-image", "--account", accountID, "--region", region)
	_, end := v.installStack("acme", "FAIRLEAD_PLUGINS="+program.Copies(t, "runner/kubernetes", "runner/images"))
	defer end()
	v.eventually("the stack is online", func() bool { return ask[wire.Stack](v.world, "install", "stack", "acme").State == "online" })
	v.deployed("acme")
	id := ask[wire.Install](v.world, "install", "show", "acme").ID
	if !v.registry.hasImage("fairlead/"+id+"/web", p.Artifact) {
		t.Errorf("the install has no copy of the image: it is in %q", v.registry.with(p.Artifact))
	}
}

// resourcesWithLogin stores a secret in Secrets Manager, and returns the resources of a stack whose build runner may read it.
func (v *vendor) resourcesWithLogin(secret string) map[string]resource {
	t := v.account.t
	t.Helper()
	secrets := secretsmanager.NewFromConfig(aws.Config{Region: region, BaseEndpoint: aws.String(v.moto), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")})
	made, err := secrets.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: aws.String("ghcr"), SecretString: &secret})
	v.ok("store the login", err)
	text, err := os.ReadFile(loginsTemplate)
	v.ok("read the resources", err)
	if !bytes.Contains(text, []byte(shownLogin)) {
		t.Fatalf("%s does not have %s", loginsTemplate, shownLogin)
	}
	var out template
	v.ok("read the resources", json.Unmarshal(bytes.ReplaceAll(text, []byte(shownLogin), []byte(*made.ARN)), &out))
	return out.Resources
}

// makeGoImage builds the runner's image with Go as `make runner-image WITH_GO=1` does, for this machine.
func makeGoImage(t *testing.T) v1.Image {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./infra/images/runner", "-go", "-arch", runtime.GOARCH, "-version", "v1.2.3", "-tofu", os.Getenv("FAIRLEAD_TOFU"), "-out", out)
	cmd.Dir = "../../.."
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the image: %v\n%s", err, text)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(out, "layout-go"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := index.IndexManifest()
	if err != nil || len(list.Manifests) != 1 {
		t.Fatalf("the layout has %+v, %v, want one image", list, err)
	}
	img, err := index.Image(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// inImage returns the command that starts the program of an image with the image's files, user and environment, and with the
// network of this machine.
func (w *world) inImage(t *testing.T, img v1.Image, args ...string) *exec.Cmd {
	t.Helper()
	root := t.TempDir()
	w.ok("open the folders to the image's user", os.Chmod(root, 0o755))
	w.ok("unpack the image", unpack(img, root))
	w.ok("make the devices", makeDevices(t, root))
	config, err := img.ConfigFile()
	w.ok("read the image's configuration", err)
	const user = 65532
	if config.Config.User != "65532:65532" {
		t.Fatalf("the image's user is %q", config.Config.User)
	}
	authority, err := os.ReadFile(w.authority)
	w.ok("read the authority of the hosts", err)
	const inside = "/etc/ssl/certs/ca-certificates.crt"
	w.ok("trust the authority of the hosts", os.WriteFile(filepath.Join(root, inside), authority, 0o644))
	cmd := exec.Command(config.Config.Entrypoint[0], args...)
	cmd.Err = nil // exec looked for the program outside of the folder
	cmd.Dir, cmd.Env = config.Config.WorkingDir, append(slices.Clone(config.Config.Env), "HTTPS_PROXY="+w.proxy, "FAIRLEAD_PASS_ENV=HTTPS_PROXY")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	return cmd
}

// unpack writes the files of an image to a folder.
func unpack(img v1.Image, root string) error {
	files := mutate.Extract(img)
	defer func() { _ = files.Close() }() // read to its end, or the error is returned
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		to := filepath.Join(root, h.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeSymlink:
			if err := os.Symlink(h.Linkname, to); err != nil {
				return err
			}
			continue
		case tar.TypeLink:
			if err := os.Link(filepath.Join(root, h.Linkname), to); err != nil {
				return err
			}
			continue
		case tar.TypeDir:
			err = os.MkdirAll(to, 0o755)
		default:
			var f *os.File
			if f, err = os.Create(to); err == nil {
				_, err = io.Copy(f, r)
				err = errors.Join(err, f.Close())
			}
		}
		if err = errors.Join(err, os.Chown(to, h.Uid, h.Gid), os.Chmod(to, h.FileInfo().Mode())); err != nil {
			return err
		}
	}
}

// makeDevices makes the devices and the kernel's files that a container has, until the test ends.
func makeDevices(t *testing.T, root string) error {
	const memory = 1 << 8 // the major number
	err := errors.Join(os.MkdirAll(filepath.Join(root, "dev"), 0o755), os.MkdirAll(filepath.Join(root, "proc"), 0o755))
	for name, minor := range map[string]int{"null": 3, "urandom": 9} {
		file := filepath.Join(root, "dev", name)
		err = errors.Join(err, syscall.Mknod(file, syscall.S_IFCHR, memory|minor), os.Chmod(file, 0o666))
	}
	proc := filepath.Join(root, "proc")
	if err = errors.Join(err, syscall.Mount("/proc", proc, "", syscall.MS_BIND, "")); err == nil {
		t.Cleanup(func() {
			if err := syscall.Unmount(proc, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	return err
}
