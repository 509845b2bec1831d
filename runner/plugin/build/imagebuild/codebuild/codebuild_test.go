package codebuild_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/codebuild"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/codebuildtest"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/imagebuildtest"
	"github.com/fairlead/fairlead/test/hosts"
	"github.com/fairlead/fairlead/tools/buildkitd/daemon"
	"github.com/fairlead/fairlead/tools/moto"
	"github.com/fairlead/fairlead/tools/shortrun"
	"github.com/fairlead/fairlead/tools/testserver"
)

const (
	account = "123456789012"
	region  = "eu-central-1"
	bucket  = "builds"
	// template is the golden file of the control plane's stack, which has the project.
	template = "../../../../../infra/control/testdata/control.template.json"
)

var (
	buildkit daemon.Server
	server   moto.Server
)

func TestMain(m *testing.M) {
	code := m.Run()
	buildkit.Stop()
	server.Stop()
	os.Exit(code)
}

// cloud is an account with the project of the control plane's stack.
type cloud struct {
	t       *testing.T
	service *codebuildtest.Service
	client  *http.Client
	proxy   string // URL
	s3      *s3.Client
	group   string
	next    atomic.Int64
	// refuse decides which requests to S3 fail; nil: none. Set it before the first build.
	refuse func(*http.Request) bool
	// during runs once the build waits in the queue or its program waits; nil: nothing does.
	during func(*codebuildtest.Service)
	socket bool // the context has a socket
}

// await returns the result of a build. Before, it runs during, if the build waits.
func (c *cloud) await(done <-chan error, log fmt.Stringer) error {
	c.t.Helper()
	if c.during != nil {
		until(c.t, "the build waits", func() bool {
			return strings.Contains(log.String(), "working here") || c.service.Queue && len(c.service.Statuses()) > 0
		})
		c.during(c.service)
	}
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		c.t.Fatalf("the build does not end\n%s", log)
		return nil
	}
}

func until(t *testing.T, what string, met func() bool) {
	t.Helper()
	testserver.Until(t, what, met)
}

// listen makes a socket in the folder.
func listen(t *testing.T, dir string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

// project reads the project from the template of the stack.
func project(t *testing.T, group string) codebuildtest.Project {
	t.Helper()
	text, err := os.ReadFile(template)
	if err != nil {
		t.Fatal(err)
	}
	var stack struct {
		Resources map[string]struct {
			Type       string
			Properties map[string]any
		}
	}
	if err := json.Unmarshal(text, &stack); err != nil {
		t.Fatal(err)
	}
	r := stack.Resources["BuildRunnerImages"]
	r.Properties["ServiceRole"] = "arn:aws:iam::" + account + ":role/image-build"
	r.Properties["LogsConfig"].(map[string]any)["CloudWatchLogs"].(map[string]any)["GroupName"] = group
	p, err := codebuildtest.ReadProject(r.Properties)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newCloud starts the account. change may change its project.
func newCloud(t *testing.T, change func(*codebuildtest.Project)) *cloud {
	t.Helper()
	address, bin := buildkit.Host(t)
	endpoint := server.Endpoint(t)
	c := &cloud{t: t, group: "/image-build-" + strings.ReplaceAll(t.Name(), "/", "-")}
	cfg := aws.Config{Region: region, BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
	logs := cloudwatchlogs.NewFromConfig(cfg)
	if _, err := logs.CreateLogGroup(t.Context(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: &c.group}); err != nil {
		t.Fatal(err)
	}
	c.s3 = s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	_, err := c.s3.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket), CreateBucketConfiguration: &s3types.CreateBucketConfiguration{LocationConstraint: region}})
	if _, there := errors.AsType[*s3types.BucketAlreadyOwnedByYou](err); err != nil && !there {
		t.Fatal(err)
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(u)
	objects := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.refuse != nil && c.refuse(r) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
			return
		}
		forward.ServeHTTP(w, r)
	})
	p := project(t, c.group)
	if change != nil {
		change(&p)
	}
	machine := codebuildtest.Machine{Path: codebuildtest.Docker(t, filepath.Join(bin, "buildctl"), address), Log: (&codebuildtest.Logs{Client: func(string) (*cloudwatchlogs.Client, error) { return logs, nil }}).Write}
	service := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.service.ServeHTTP(w, r) })
	authority, proxy := hosts.Serve(t, map[string]http.Handler{"codebuild." + region + ".amazonaws.com": service,
		"*.s3." + region + ".amazonaws.com": objects, "logs." + region + ".amazonaws.com": forward})
	machine.Environ = []string{"HTTPS_PROXY=" + proxy, "CURL_CA_BUNDLE=" + authority}
	c.service = codebuildtest.New(t, account, region, p, machine)

	c.proxy, c.client = proxy, &http.Client{Transport: hosts.Transport(t, authority, proxy)}
	return c
}

// builder returns the builder of a new attempt.
func (c *cloud) builder(change func(*codebuild.Config)) imagebuild.Builder {
	n := c.next.Add(1)
	attempt := fmt.Sprintf("app_a/job_%d/1", n)
	cfg := codebuild.Config{Attempt: fmt.Sprintf("job_%d-1", n), HTTP: c.client, Now: time.Now, Every: 50 * time.Millisecond, Within: 10 * time.Second,
		Access: wire.ImageBuildAccess{CloudAccess: wire.CloudAccess{Region: region, AccessKeyID: "ASIAEXAMPLE", SecretAccessKey: "secret", SessionToken: "token", ExpiresAt: time.Now().Add(time.Hour)},
			Project: c.project().Name, Bucket: bucket, Prefix: "builds/" + c.t.Name() + "/" + attempt + "/", LogGroup: c.group, LogStream: attempt}}
	if change != nil {
		change(&cfg)
	}
	return codebuild.New(cfg)
}

func (c *cloud) project() codebuildtest.Project { return project(c.t, c.group) }

// CodeBuild is an image builder like others. The simulated service runs the buildspec of the stack's template, with a real
// BuildKit.
func TestCodeBuild(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
	c := newCloud(t, nil)
	imagebuildtest.Subject{
		New:       func(*testing.T, []string) imagebuild.Builder { return c.builder(nil) },
		Platforms: [2]string{"linux/amd64", "linux/arm64"},
		Unreachable: func(t *testing.T) imagebuild.Builder {
			c := newCloud(t, nil)
			c.service.Refuse(func(string, int) (int, string) { return http.StatusInternalServerError, "InternalFailure" })
			return c.builder(func(cfg *codebuild.Config) { cfg.Within = time.Second })
		},
	}.Run(t)
}
