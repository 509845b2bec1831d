package bucket_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/plugin/terraform/bucket"
	"github.com/fairlead/fairlead/runner/plugin/terraform/mirror"
	"github.com/fairlead/fairlead/runner/plugin/terraform/mirror/mirrortest"
	"github.com/fairlead/fairlead/runner/plugin/terraform/statebucket"
	"github.com/fairlead/fairlead/tools/moto"
)

var others moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	others.Stop()
	os.Exit(code)
}

func open(t *testing.T, env map[string]string) mirror.Mirror {
	t.Helper()
	at, err := providers.ParseMirror("s3://providers/providers")
	if err != nil {
		t.Fatal(err)
	}
	m, err := bucket.Buckets{}.Mirror(at, env)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestBucket(t *testing.T) {
	endpoint := others.Endpoint(t)
	client := s3.NewFromConfig(aws.Config{Region: "us-east-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("AKIATEST", "test", "")},
		func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("providers")}); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL_S3": endpoint}
	mirrortest.Run(t, func(t *testing.T) mirror.Mirror { return open(t, env) })

	out, err := client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String("providers")})
	if err != nil || len(out.Contents) == 0 {
		t.Fatalf("the bucket is empty: %v", err)
	}
	for _, o := range out.Contents {
		if !strings.HasPrefix(*o.Key, "providers/") {
			t.Errorf("the object %s is outside the prefix, where the operation's role may write nothing", *o.Key)
		}
	}
}

// A job without credentials downloads its providers itself.
func TestBucketNeedsCredentials(t *testing.T) {
	at := providers.MirrorLocation{Bucket: "providers"}
	if _, err := (bucket.Buckets{}).Mirror(at, map[string]string{"AWS_REGION": "us-east-1"}); !errors.Is(err, statebucket.ErrNoCredentials) {
		t.Errorf("error %v, want statebucket.ErrNoCredentials", err)
	}
}
