// Package statebucket inspects an S3 bucket, of AWS or of a compatible server, in which a tool stores states. It checks
// whether the bucket keeps earlier versions, and whether a state exists. It reads no state.
package statebucket

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// Bucket is the location of a bucket.
type Bucket struct {
	Name, Region string
	Endpoint     string // "": AWS
}

// Look inspects one bucket. Safe for concurrent use.
type Look struct {
	client *s3.Client
	bucket string
}

// ErrNoCredentials reports that this package finds no credentials in the environment. The tool may still find credentials,
// because it looks in more places.
var ErrNoCredentials = errors.New("no AWS credentials found in the job's environment")

// New returns a Look with the credentials that env, a tool's environment, gives to the tool. It sends no request.
func New(b Bucket, env map[string]string) (*Look, error) {
	client, err := Client(b, env)
	if err != nil {
		return nil, err
	}
	return &Look{bucket: b.Name, client: client}, nil
}

// Client returns a client of S3 for the bucket, with the endpoint and the credentials that env, a tool's environment, gives to
// the tool. The error is ErrNoCredentials if env gives none. It sends no request.
func Client(b Bucket, env map[string]string) (*s3.Client, error) {
	cfg := aws.Config{Region: b.Region, RetryMaxAttempts: 3}
	for _, endpoint := range []string{b.Endpoint, env["AWS_ENDPOINT_URL_S3"], env["AWS_ENDPOINT_URL"]} {
		if endpoint != "" {
			cfg.BaseEndpoint = &endpoint
			break
		}
	}
	provider := provide(cfg, env)
	if provider == nil {
		return nil, ErrNoCredentials
	}
	cfg.Credentials = aws.NewCredentialsCache(provider)
	// An endpoint of the customer's choice, such as a compatible server, may have no name for each bucket.
	return s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = cfg.BaseEndpoint != nil }), nil
}

// provide returns a provider of the credentials that env names, or nil if env names none. It looks for them in the order of
// the SDKs.
func provide(cfg aws.Config, env map[string]string) aws.CredentialsProvider {
	switch {
	case env["AWS_ACCESS_KEY_ID"] != "" && env["AWS_SECRET_ACCESS_KEY"] != "":
		return credentials.NewStaticCredentialsProvider(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"], env["AWS_SESSION_TOKEN"])
	case env["AWS_WEB_IDENTITY_TOKEN_FILE"] != "" && env["AWS_ROLE_ARN"] != "":
		cfg.BaseEndpoint = nil
		if endpoint := cmp.Or(env["AWS_ENDPOINT_URL_STS"], env["AWS_ENDPOINT_URL"]); endpoint != "" {
			cfg.BaseEndpoint = &endpoint
		}
		return stscreds.NewWebIdentityRoleProvider(sts.NewFromConfig(cfg), env["AWS_ROLE_ARN"], stscreds.IdentityTokenFile(env["AWS_WEB_IDENTITY_TOKEN_FILE"]))
	}
	at := env["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
	if path := env["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"]; path != "" {
		at = "http://169.254.170.2" + path // the address of the ECS agent
	}
	if at == "" {
		return nil
	}
	return endpointcreds.New(at, func(o *endpointcreds.Options) {
		o.AuthorizationToken = env["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
		if file := env["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]; file != "" {
			o.AuthorizationTokenProvider = endpointcreds.TokenProviderFunc(func() (string, error) {
				b, err := os.ReadFile(file)
				return string(b), err
			})
		}
	})
}

// limit bounds one request. S3 answers within tens of milliseconds.
const limit = 15 * time.Second

// Versioned reports whether the bucket keeps earlier versions of overwritten objects.
func (l *Look) Versioned(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := l.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &l.bucket})
	if err != nil {
		return false, err
	}
	return out.Status == types.BucketVersioningStatusEnabled, nil
}

// Holds reports whether an object with this key exists.
func (l *Look) Holds(ctx context.Context, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := l.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &l.bucket, Key: &key})
	if e, ok := errors.AsType[*awshttp.ResponseError](err); ok && e.HTTPStatusCode() == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}
