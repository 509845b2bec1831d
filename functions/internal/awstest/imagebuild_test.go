package awstest

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-containerregistry/pkg/authn"
	images "github.com/google/go-containerregistry/pkg/registry"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/artifact/ecr"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awssession"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/codebuild"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/codebuildtest"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/imagebuildtest"
	"github.com/fairlead/fairlead/test/hosts"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// buildImages starts CodeBuild with the project of the control plane's stack. CodeBuild writes the logs of builds with the
// credentials of the project's role, which the guard checks.
func (w *world) buildImages() {
	w.t.Helper()
	address, bin := buildkit.Host(w.t)
	logs := &codebuildtest.Logs{Client: func(role string) (*cloudwatchlogs.Client, error) {
		c, err := w.guard.Open("codebuild.amazonaws.com", role, "AWSCodeBuild")
		return cloudwatchlogs.NewFromConfig(aws.Config{Region: region, BaseEndpoint: aws.String(w.gates["CLOUDWATCH_LOGS"].url),
			Credentials: credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)}), err
	}}
	w.images = codebuildtest.New(w.t, accountID, region, w.projects["BuildRunnerImages"], codebuildtest.Machine{
		Path: codebuildtest.Docker(w.t, filepath.Join(bin, "buildctl"), address), Environ: []string{"HTTPS_PROXY=" + w.proxy, "CURL_CA_BUNDLE=" + w.authority}, Log: logs.Write})
}

// withBuildRunner returns the parameters of a stack with a build runner.
func withBuildRunner() map[string]string {
	p := released()
	p["BuildRunner"], p["BuildRunnerKeys"] = "run_"+strings.Repeat("0", 26), strings.Repeat("A", 43)+"="
	return p
}

// The Runner API's role opens a session for one attempt of a build, and the attempt lets CodeBuild build an image: with the
// roles, the policies, the project and the bucket of the stack. IAM allows each request of the step and of CodeBuild. The
// same credentials serve for no other attempt, and neither they nor the role of the project can push.
func TestImageIsBuiltWithoutARightToPush(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	a := deploy(t, releasedTemplate(t, withBuildRunner()))
	w := connect(t, a, nil)
	defer w.close()
	w.buildImages()
	client := &http.Client{Transport: hosts.Transport(t, w.authority, w.proxy)}
	given := (&outside{account: w.account}).given
	f := w.functions["runnerapi"]
	own, err := w.guard.Open("lambda.amazonaws.com", f.role, "runnerapi")
	w.ok("open the role of runnerapi", err)
	granter, err := awssession.New(aws.Config{Region: region, HTTPClient: client, Credentials: credentials.NewStaticCredentialsProvider(own.AccessKeyID, own.SecretAccessKey, own.SessionToken)},
		awssession.Options{Role: given("runnerapi", "FAIRLEAD_BUILDER_ROLE"), ArtifactPrefix: given("runnerapi", "FAIRLEAD_ARTIFACT_PREFIX"),
			Images: awssession.Images{Project: given("runnerapi", "FAIRLEAD_IMAGE_PROJECT"), Bucket: given("runnerapi", "FAIRLEAD_IMAGE_BUCKET"), LogGroup: given("runnerapi", "FAIRLEAD_IMAGE_LOG_GROUP")}})
	w.ok("make a granter", err)
	access := func(app fairlead.AppID, job fairlead.JobID) wire.ImageBuildAccess {
		got, err := granter.BuildImage(t.Context(), app, job, 1)
		w.ok("open the session of a build", err)
		return imageAccess(got)
	}
	mine := access("app_a", "job_a")
	build := func(a wire.ImageBuildAccess, attempt string) (string, *bytes.Buffer, error) {
		log, dir := &bytes.Buffer{}, t.TempDir()
		b := codebuild.New(codebuild.Config{Access: a, Attempt: attempt, HTTP: client, Now: time.Now, Every: 100 * time.Millisecond, Within: 5 * time.Second})
		context := imagebuildtest.Context(t, map[string]string{"Dockerfile": "FROM scratch\nCOPY probe /probe\nRUN [\"/probe\", \"write\", \"/made\"]\n"})
		return dir, log, b.Build(t.Context(), imagebuild.Request{Context: context, Dockerfile: "Dockerfile", Log: log}, dir)
	}
	dir, log, err := build(mine, "job_a-1")
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	if n := len(imagebuildtest.Images(t, dir)); n != 1 || !strings.Contains(log.String(), "RUN [") {
		t.Errorf("%d images, and the log\n%s", n, log)
	}
	objects := s3.NewFromConfig(w.account.config("S3"), func(o *s3.Options) { o.UsePathStyle = true })
	out, err := objects.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &mine.Bucket})
	w.ok("list the bucket", err)
	if len(out.Contents) > 0 {
		t.Errorf("the build leaves %v", out.Contents)
	}

	// A later attempt may read which build an earlier one has started, and stop it.
	later, err := granter.BuildImage(t.Context(), "app_a", "job_a", 2)
	w.ok("open the session of a second attempt", err)
	left, err := granter.BuildImage(t.Context(), "app_a", "job_a", 1)
	w.ok("open the session of a first attempt", err)
	_, err = objects.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &left.Image.Bucket, Key: aws.String(left.Image.Prefix + "build"), Body: strings.NewReader(w.images.IDs()[0])})
	w.ok("store the build of a first attempt", err)
	if _, log, err := build(imageAccess(later), "job_a-2"); err != nil {
		t.Errorf("the second attempt: %v\n%s", err, log)
	}

	w.refused.attack()
	for name, change := range map[string]func(*wire.ImageBuildAccess){
		"the objects of another job": func(a *wire.ImageBuildAccess) { a.Prefix = strings.Replace(a.Prefix, "job_a", "job_b", 1) },
		"the objects of another app": func(a *wire.ImageBuildAccess) { a.Prefix = strings.Replace(a.Prefix, "app_a", "app_b", 1) },
		"another bucket":             func(a *wire.ImageBuildAccess) { a.Bucket = w.ref("Blobs") },
		"another project":            func(a *wire.ImageBuildAccess) { a.Project = "other" },
	} {
		other := mine
		change(&other)
		before := w.refused.count()
		if _, log, err := build(other, "job_a-1-"+name[:2]); plugin.ReasonOf(err) != fairlead.ReasonBuilderUnavailable || w.refused.count() == before {
			t.Errorf("with %s, the build ends with %v after %d refusals\n%s", name, err, w.refused.count()-before, log)
		}
	}
	other := mine
	other.LogStream = strings.Replace(mine.LogStream, "job_a", "job_b", 1)
	if _, log, err := build(other, "job_a-3"); err != nil || !strings.Contains(log.String(), "cannot be read") {
		t.Errorf("with the log of another job, the build ends with %v and the log\n%s", err, log)
	}
	if !slices.Equal(w.images.Statuses(), []string{"SUCCEEDED", "SUCCEEDED", "SUCCEEDED"}) {
		t.Errorf("the builds are %q", w.images.Statuses())
	}
	// The registry gives no login to the credentials of the step, and none to those of CodeBuild.
	role, err := w.guard.Open("codebuild.amazonaws.com", w.attribute("BuildRunnerImagesRole", "Arn"), "AWSCodeBuild")
	w.ok("open the role of the project", err)
	for who, c := range map[string]aws.Credentials{"the step's access": {AccessKeyID: mine.AccessKeyID, SecretAccessKey: mine.SecretAccessKey, SessionToken: mine.SessionToken}, "CodeBuild": role} {
		if err := w.login(c); err == nil {
			t.Errorf("%s can log in to the registry", who)
		}
	}
}

// imageAccess renders access as the Runner API does.
func imageAccess(a identity.Access) wire.ImageBuildAccess {
	return wire.ImageBuildAccess{CloudAccess: wire.CloudAccess{Region: a.Region, AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey, SessionToken: a.SessionToken, ExpiresAt: a.Expires},
		Project: a.Image.Project, Bucket: a.Image.Bucket, Prefix: a.Image.Prefix, LogGroup: a.Image.LogGroup, LogStream: a.Image.LogStream}
}

// login asks ECR for a login with the credentials.
func (w *world) login(c aws.Credentials) error {
	w.t.Helper()
	registry := ecr.New(aws.Config{Region: region, BaseEndpoint: aws.String(w.gates["ECR"].url)}, ecr.Options{Account: accountID})
	_, err := registry.Login(w.t.Context(), identity.Access{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken})
	return err
}

// The vendor deploys with a build runner and publishes an app with a Dockerfile on a private base image. The build runner has
// a login for it and no BuildKit, so it fetches the base image, lets CodeBuild build, and pushes the image to the repository
// of builds. An install in a customer's account gets a copy with the same digest. A Dockerfile that fails is reported with its
// log. What did not change is not built again.
func TestDockerfileIsBuiltByCodeBuildAndInstalled(t *testing.T) {
	skipIfShort(t)
	v := newVendor(t)
	defer v.close()
	v.BuildRunner = "build"
	v.ok("deploy with a build runner", v.Do(t.Context()))
	r := v.stackResolver(nil)
	v.buildImages()
	pass := []string{"FAIRLEAD_PLUGINS=" + program.Copies(t, "runner/kubernetes", "runner/images")}
	// The build runner has a login for the registry of the base image.
	private := imagebuildtest.NewPrivate(t, "reader", "5ecret-of-the-registry")
	secret := filepath.Join(t.TempDir(), "login")
	v.ok("store the login", os.WriteFile(secret, []byte("reader:5ecret-of-the-registry"), 0o600))
	defer v.startTask(r, "BuildRunnerTask", append(pass, `FAIRLEAD_AGENT_CONFIG={"runner_configuration":{"type":"local"},"secrets":{"BASE_LOGIN":"file:`+secret+`"}}`)...)()
	v.cli("runner", "check", "build", "--timeout", "1m")
	generators := httptest.NewServer(images.New())
	defer generators.Close()
	v.cli("runner", "update", "build", "--set", "runner_configuration.job.environment.SBOM_GENERATOR="+imagebuildtest.Generator(t, strings.TrimPrefix(generators.URL, "http://")))

	app := filepath.Join(t.TempDir(), "app")
	v.ok("copy the example", os.CopyFS(app, os.DirFS("../../../examples/docker-build")))
	dockerfile, err := os.ReadFile(filepath.Join(app, "web", "Dockerfile"))
	v.ok("read the Dockerfile", err)
	v.ok("damage the Dockerfile", os.WriteFile(filepath.Join(app, "web", "Dockerfile"), []byte("FROM scratch\nCOPY none /none\n"), 0o644))
	if out, err := v.command(t.Context(), "app", "apply", app).CombinedOutput(); err == nil || !strings.Contains(string(out), "the image cannot be built") {
		t.Errorf("a Dockerfile that fails: %v\n%s", err, out)
	}
	base := imagebuildtest.Base(t, private.Host+"/base", &authn.Basic{Username: "reader", Password: "5ecret-of-the-registry"}, "linux/amd64", "linux/arm64")
	v.ok("repair the Dockerfile", os.WriteFile(filepath.Join(app, "web", "Dockerfile"), bytes.Replace(dockerfile, []byte("FROM scratch"), []byte("FROM "+base), 1), 0o644))
	settings, err := os.ReadFile(filepath.Join(app, "app.yaml"))
	v.ok("read app.yaml", err)
	v.ok("name the login", os.WriteFile(filepath.Join(app, "app.yaml"), bytes.Replace(settings, []byte("    source: ./web\n"), []byte("    source: ./web\n    logins:\n      "+private.Host+": BASE_LOGIN\n"), 1), 0o644))
	v.cli("app", "apply", app)
	if got := v.images.Statuses(); !slices.Equal(got, []string{"FAILED", "SUCCEEDED"}) {
		t.Errorf("the builds of CodeBuild are %q", got)
	}
	v.cli("app", "apply", app)
	if n := len(v.images.Statuses()); n != 2 {
		t.Errorf("after an apply without a change, CodeBuild has had %d builds", n)
	}
	digest := ask[wire.Provenance](v.world, "app", "provenance", "docker-build", "web").Artifact
	repositories := v.registry.with(digest)
	if len(repositories) != 1 || !strings.HasSuffix(repositories[0], "/web/built") {
		t.Errorf("the image is in the repositories %q, want only that of the builds", repositories)
	}

	v.cli("install", "create", "acme", "--app", "docker-build", "--account", accountID, "--region", region)
	_, stop := v.installStack("acme", pass...)
	defer stop()
	v.eventually("the stack is online", func() bool { return ask[wire.Stack](v.world, "install", "stack", "acme").State == "online" })
	v.deployed("acme")
	id := ask[wire.Install](v.world, "install", "show", "acme").ID
	if !v.registry.hasImage("fairlead/"+id+"/web", digest) {
		t.Errorf("the install has no copy of the image: it is in %q", v.registry.with(digest))
	}
	want := []string{"application/vnd.in-toto+json", "application/vnd.in-toto.provenance+dsse"}
	for _, repository := range []string{repositories[0], "fairlead/" + id + "/web"} {
		if got := v.registry.referrers(repository, digest); !slices.Equal(got, want) {
			t.Errorf("in %s, the image has the statements %q, want %q", repository, got, want)
		}
	}
}
