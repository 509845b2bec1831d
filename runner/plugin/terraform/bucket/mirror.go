package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/plugin/terraform/mirror"
	"github.com/fairlead/fairlead/runner/plugin/terraform/statebucket"
)

// archives is a mirror in a bucket of S3 or of a compatible server. The role of the job's operation needs s3:GetObject and
// s3:PutObject below the prefix.
type archives struct {
	client *s3.Client
	at     providers.MirrorLocation
}

// OpenMirror returns the mirror of providers in a bucket. env is the environment of the job's tool: the bucket is used with its
// region, endpoint and credentials. OpenMirror sends no request.
func OpenMirror(at providers.MirrorLocation, env map[string]string) (mirror.Mirror, error) {
	client, err := statebucket.Client(statebucket.Bucket{Name: at.Bucket, Region: env["AWS_REGION"]}, env)
	if err != nil {
		return nil, err
	}
	return &archives{client, at}, nil
}

func (b *archives) key(name string) *string { return aws.String(b.at.Prefix + name) }

func (b *archives) Get(ctx context.Context, name string, w io.Writer) error {
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.at.Bucket, Key: b.key(name)})
	if e, ok := errors.AsType[*awshttp.ResponseError](err); ok && e.HTTPStatusCode() == http.StatusNotFound {
		return fmt.Errorf("read s3://%s/%s: %w", b.at.Bucket, *b.key(name), fs.ErrNotExist)
	}
	if err != nil {
		return fmt.Errorf("read s3://%s/%s: %w", b.at.Bucket, *b.key(name), err)
	}
	defer out.Body.Close()
	if err := mirror.CopyLimited(w, out.Body); err != nil {
		return fmt.Errorf("read s3://%s/%s: %w", b.at.Bucket, *b.key(name), err)
	}
	return nil
}

func (b *archives) Put(ctx context.Context, name string, from *os.File) error {
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &b.at.Bucket, Key: b.key(name), Body: from, ContentType: aws.String("application/zip")})
	if err != nil {
		return fmt.Errorf("write s3://%s/%s: %w", b.at.Bucket, *b.key(name), err)
	}
	return nil
}
