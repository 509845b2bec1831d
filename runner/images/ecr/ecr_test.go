package ecr_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsecr "github.com/aws/aws-sdk-go-v2/service/ecr"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/images/ecr"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/tools/moto"
)

var server moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

func open(t *testing.T, endpoint string) *ecr.Registry {
	t.Helper()
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "job", "AWS_SECRET_ACCESS_KEY": "job", "AWS_MAX_ATTEMPTS": "1", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"} {
		t.Setenv(name, value)
	}
	r, err := ecr.Open(t.Context(), "eu-central-1")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The login and the repository come from the role of the job. An apply that is repeated finds its repository.
func TestRepositoryIsMadeOnceWithTheJobsRole(t *testing.T) {
	endpoint := server.Endpoint(t)
	r := open(t, endpoint)
	user, password, err := r.Login(t.Context())
	if err != nil || user != "AWS" || password == "" {
		t.Fatalf("the login is %q, %v", user, err)
	}
	for range 2 {
		if err := r.Make(t.Context(), "fairlead/ins_1/web", "ins_1"); err != nil {
			t.Fatal(err)
		}
	}
	c := awsecr.New(awsecr.Options{Region: "eu-central-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("job", "job", "")})
	out, err := c.DescribeRepositories(t.Context(), &awsecr.DescribeRepositoriesInput{RepositoryNames: []string{"fairlead/ins_1/web"}})
	if err != nil || len(out.Repositories) != 1 {
		t.Fatalf("the repositories are %v, %v", out, err)
	}
	tags, err := c.ListTagsForResource(t.Context(), &awsecr.ListTagsForResourceInput{ResourceArn: out.Repositories[0].RepositoryArn})
	if err != nil || len(tags.Tags) != 1 || aws.ToString(tags.Tags[0].Key) != "fairlead_install" || aws.ToString(tags.Tags[0].Value) != "ins_1" {
		t.Errorf("the tags are %v, %v", tags, err)
	}
}

func TestRefusalNamesTheAction(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"__type":"AccessDeniedException","message":"no"}`)) // the client is this test's
	}))
	r := open(t, s.URL)
	if _, _, err := r.Login(t.Context()); plugin.ReasonOf(err) != fairlead.ReasonRegistryForbidden {
		t.Errorf("the login: %v", err)
	}
	if err := r.Make(t.Context(), "fairlead/ins_1/web", "ins_1"); plugin.ReasonOf(err) != fairlead.ReasonRegistryForbidden {
		t.Errorf("the repository: %v", err)
	}
	s.Close()
	if _, _, err := r.Login(t.Context()); plugin.ReasonOf(err) != fairlead.ReasonRegistryUnreachable {
		t.Errorf("a login that is not answered: %v", err)
	}
}
