package ecr_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsecr "github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"

	"github.com/fairlead/fairlead/pkg/artifact/ecr"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/control/controltest"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/tools/moto"
)

var server moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

var _ control.Artifacts = (*ecr.Registry)(nil)

const account = "123456789012"

func at(url string) aws.Config {
	return aws.Config{Region: "eu-central-1", BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider("function", "function", ""), RetryMaxAttempts: 1}
}

// An app's repositories are created once, even if the app is published many times. The
// login uses the publisher's credentials, not the credentials of the function.
func TestEachComponentHasARepository(t *testing.T) {
	cfg := at(server.Endpoint(t))
	asked := []fairlead.AppID{}
	r := ecr.New(cfg, ecr.Options{Account: account, Prefix: "fairlead-prod/app/", Publish: func(_ context.Context, app fairlead.AppID) (identity.Access, error) {
		asked = append(asked, app)
		return identity.Access{AccessKeyID: "publisher", SecretAccessKey: "publisher", Expires: time.Now().Add(15 * time.Minute)}, nil
	}})
	for range 2 {
		l, err := r.OpenForPush(t.Context(), "app_a", []string{"web", "network"})
		if err != nil || l.Username != "AWS" || l.Password == "" {
			t.Fatalf("the login is %q, %v", l.Username, err)
		}
		if left := time.Until(l.Expires); left > 15*time.Minute {
			t.Errorf("the login is valid for %s, longer than its credentials", left)
		}
	}
	if !slices.Equal(asked, []fairlead.AppID{"app_a", "app_a"}) {
		t.Errorf("the credentials were requested for %s", asked)
	}
	out, err := awsecr.NewFromConfig(cfg).DescribeRepositories(t.Context(), &awsecr.DescribeRepositoriesInput{RepositoryNames: []string{r.Repository("app_a", "web"), r.Repository("app_a", "network")}})
	if err != nil || len(out.Repositories) != 2 {
		t.Fatalf("repositories: %v", err)
	}
	for _, repo := range out.Repositories {
		if repo.ImageTagMutability != types.ImageTagMutabilityImmutable {
			t.Errorf("%s has mutable tags", *repo.RepositoryName)
		}
		// moto puts the repository in the account of the access key.
		if _, at, _ := strings.Cut(*repo.RepositoryUri, "."); !strings.HasSuffix(r.Host()+"/"+*repo.RepositoryName, at) {
			t.Errorf("ECR has %s at %s, but this registry is %s", *repo.RepositoryName, *repo.RepositoryUri, r.Host())
		}
	}
}

func TestRegistryConforms(t *testing.T) {
	cfg := at(server.Endpoint(t))
	access := func() identity.Access {
		return identity.Access{AccessKeyID: "publisher", SecretAccessKey: "publisher", Expires: time.Now().Add(15 * time.Minute)}
	}
	controltest.Artifacts(t, controltest.Registry{Access: access,
		Open: func(*testing.T) control.Artifacts {
			return ecr.New(cfg, ecr.Options{Account: account, Prefix: "fairlead-suite/app/", Publish: func(context.Context, fairlead.AppID) (identity.Access, error) { return access(), nil },
				Build: func(context.Context, fairlead.AppID, string) (identity.Access, error) { return access(), nil }})
		},
		There: func(t *testing.T, repository string) bool {
			_, err := awsecr.NewFromConfig(cfg).DescribeRepositories(t.Context(), &awsecr.DescribeRepositoriesInput{RepositoryNames: []string{repository}})
			if _, gone := errors.AsType[*types.RepositoryNotFoundException](err); err != nil && !gone {
				t.Fatal(err)
			}
			return err == nil
		}})
}

func TestHostDependsOnTheRegion(t *testing.T) {
	for region, want := range map[string]string{
		"eu-central-1": "123456789012.dkr.ecr.eu-central-1.amazonaws.com",
		"cn-north-1":   "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn",
	} {
		if got := ecr.New(aws.Config{Region: region}, ecr.Options{Account: account}).Host(); got != want {
			t.Errorf("the host in %s is %s, want %s", region, got, want)
		}
	}
}

// Errors of ECR and of the credentials.
func TestErrorsOfECRAreReported(t *testing.T) {
	answers := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-amz-json-1.1")
			if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".CreateRepository") && status == http.StatusOK {
				fmt.Fprint(w, `{"repository":{}}`)
				return
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	token := func(text string) string {
		return `{"authorizationData":[{"authorizationToken":"` + base64.StdEncoding.EncodeToString([]byte(text)) + `"}]}`
	}
	broken := errors.New("STS refuses")
	access := func(context.Context, fairlead.AppID) (identity.Access, error) {
		return identity.Access{AccessKeyID: "publisher", SecretAccessKey: "top-secret"}, nil
	}
	for _, tt := range []struct {
		name, url string
		publish   func(context.Context, fairlead.AppID) (identity.Access, error)
		kind      fairlead.Kind
	}{
		{"throttling", answers(400, `{"__type":"ThrottlingException"}`), access, fairlead.KindUnavailable},
		{"unreachable server", "http://127.0.0.1:1", access, fairlead.KindUnavailable},
		{"missing permission", answers(400, `{"__type":"AccessDeniedException"}`), access, fairlead.KindForbidden},
		{"response without a login", answers(200, `{"authorizationData":[]}`), access, fairlead.KindInternal},
		{"token without a user name", answers(200, token("password")), access, fairlead.KindInternal},
		{"no credentials", answers(200, token("AWS:x")), func(context.Context, fairlead.AppID) (identity.Access, error) {
			return identity.Access{}, broken
		}, fairlead.KindInternal},
		{"no publisher", answers(200, token("AWS:x")), nil, fairlead.KindInternal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ecr.New(at(tt.url), ecr.Options{Account: account, Prefix: "p/", Publish: tt.publish})
			l, err := r.OpenForPush(t.Context(), "app_a", []string{"web"})
			if err == nil || l != (identity.Login{}) {
				t.Fatalf("got a login %v, %v", l, err)
			}
			if got := fairlead.KindOf(err); got != tt.kind {
				t.Errorf("the error is of kind %v, want %v: %v", got, tt.kind, err)
			}
			if strings.Contains(err.Error(), "top-secret") {
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
}
