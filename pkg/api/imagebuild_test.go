package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// imageBuilds grants access in memory.
type imageBuilds struct {
	app fairlead.AppID
	err error
}

func (b *imageBuilds) BuildImage(_ context.Context, app fairlead.AppID, job fairlead.JobID, epoch int64) (identity.Access, error) {
	b.app = app
	return identity.Access{Region: "eu-central-1", AccessKeyID: "ASIA1", SecretAccessKey: "secret", SessionToken: "token",
		Image: identity.ImagePlace{Project: "images", Bucket: "files", Prefix: "builds/" + string(app) + "/" + string(job) + "/", LogGroup: "/images", LogStream: string(job)}}, b.err
}

// Only the step of a build gets access to the service that builds images, for its own job and app. A person's token and
// the step of another job get none.
func TestOnlyABuildGetsImageBuilds(t *testing.T) {
	c := newCast(t)
	config := json.RawMessage(`{"fairlead":"v1","name":"site","inputs":[],"components":[{"name":"web","type":"docker-build","source":".","git":{"url":"https://git.example.com/x","ref":"v1"},"build":{"dockerfile":"Dockerfile"}}]}`)
	queued := call[wire.AppBuilds](c.plane, "POST", "/v1/apps/site/builds", c.api, wire.BuildAppRequest{Config: config})
	var build, other running
	for build.claim.Job == "" || other.claim.Job == "" {
		if r := c.start(c.claim(c.sessionToken)); r.claim.Job == queued.Builds[0].Job.ID {
			build = r
		} else {
			other = r
		}
	}
	path := "/runner/v1/jobs/" + build.claim.Job + "/image-build-access"
	if res := c.send("POST", path, build.lease, nil); res.StatusCode != http.StatusNotFound || res.code(t) != "no-image-builds" {
		t.Errorf("without a service, the answer is %d %s", res.StatusCode, res.body)
	}
	service := &imageBuilds{}
	c.Control.ImageBuilds = service
	got := call[wire.ImageBuildAccess](c.plane, "POST", path, build.lease, nil)
	if got.Project != "images" || got.Bucket != "files" || !strings.HasPrefix(got.Prefix, "builds/"+string(service.app)+"/"+build.claim.Job) || !strings.HasPrefix(string(service.app), "app_") ||
		got.LogGroup != "/images" || got.LogStream != build.claim.Job || got.Region != "eu-central-1" || got.AccessKeyID != "ASIA1" || got.SecretAccessKey != "secret" || got.SessionToken != "token" {
		t.Errorf("the build of app %s gets %+v", service.app, got)
	}
	if res := c.send("POST", "/runner/v1/jobs/"+other.claim.Job+"/image-build-access", other.lease, nil); res.StatusCode != http.StatusNotFound || res.code(t) != "no-image-builds" {
		t.Errorf("a job that builds nothing is answered with %d %s", res.StatusCode, res.body)
	}
	for consequence, token := range map[string]string{"a person": c.api, "the step of another job": other.lease, "the agent": c.sessionToken, "no token": ""} {
		if res := c.send("POST", path, token, nil); res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
			t.Errorf("%s is answered with %d %s", consequence, res.StatusCode, res.body)
		}
	}
	service.err = errors.New("STS is down")
	if res := c.send("POST", path, build.lease, nil); res.StatusCode != http.StatusServiceUnavailable || res.code(t) != "image-builds-unavailable" || strings.Contains(string(res.body), "STS") {
		t.Errorf("without STS, the answer is %d %s", res.StatusCode, res.body)
	}
}
