package s3_test

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fairlead/fairlead/runner/ledger"
	"github.com/fairlead/fairlead/runner/ledger/ledgertest"
	"github.com/fairlead/fairlead/runner/ledger/s3"
	"github.com/fairlead/fairlead/tools/moto"
)

var server moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

func config(endpoint string) aws.Config {
	return aws.Config{Region: "eu-central-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}
}

// atomic returns a server before moto that passes on one conditional write at a time: moto looks for the object and stores it in two
// steps, between which another request can do the same. S3 does it in one.
func atomic(t *testing.T, moto string) string {
	t.Helper()
	to, err := url.Parse(moto)
	if err != nil {
		t.Fatal(err)
	}
	proxy, one := httputil.NewSingleHostReverseProxy(to), sync.Mutex{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" {
			one.Lock()
			defer one.Unlock()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestConformance(t *testing.T) {
	cfg := config(atomic(t, server.Endpoint(t)))
	bucket := "t-" + strings.ToLower(rand.Text())
	if _, err := awss3.NewFromConfig(cfg, func(o *awss3.Options) { o.UsePathStyle = true }).CreateBucket(t.Context(), &awss3.CreateBucketInput{
		Bucket: &bucket, CreateBucketConfiguration: &types.CreateBucketConfiguration{LocationConstraint: "eu-central-1"}}); err != nil {
		t.Fatal(err)
	}
	ledgertest.Run(t, func(*testing.T) ledger.Ledger {
		return s3.New(cfg, s3.Options{Bucket: bucket, Prefix: "ledger/", PathStyle: true})
	})
}

// answers is a server of S3 that gives these statuses, one after the other.
func answers(t *testing.T, statuses ...int) (l *s3.Ledger, requests *int) {
	requests = new(int)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "*" {
			t.Errorf("the request %s %s has no condition", r.Method, r.URL)
		}
		w.WriteHeader(statuses[min(*requests, len(statuses)-1)])
		*requests++
	}))
	t.Cleanup(srv.Close)
	return s3.New(config(srv.URL), s3.Options{Bucket: "b", PathStyle: true}), requests
}

// A Create whose answer is lost must not be repeated: its caller would take its own entry for that of another.
func TestUnclearCreateIsNotRepeated(t *testing.T) {
	l, requests := answers(t, http.StatusInternalServerError)
	if err := l.Create(t.Context(), "a/b", nil); err == nil || errors.Is(err, ledger.ErrExists) || *requests != 1 {
		t.Errorf("after %d requests: %v", *requests, err)
	}
	l, requests = answers(t, http.StatusConflict, http.StatusServiceUnavailable, http.StatusOK)
	if err := l.Create(t.Context(), "a/b", nil); err != nil || *requests != 3 {
		t.Errorf("S3 did not store it twice, after %d requests: %v", *requests, err)
	}
	l, _ = answers(t, http.StatusPreconditionFailed)
	if err := l.Create(t.Context(), "a/b", nil); !errors.Is(err, ledger.ErrExists) {
		t.Errorf("an entry that exists: %v", err)
	}
}
