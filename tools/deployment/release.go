package deployment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// images are the digests of the images that are built on this machine: "sha256:" and hex.
type images struct {
	runner string
	direct string // of direct launch; "": not wanted
	shell  string // of the runner with a shell and git; "": not wanted
}

// release has the images and the template for customers.
type release struct {
	images
	template []byte
}

// templateKey returns the key of the template in the stack's bucket. infra/control
// computes the same key.
func (r release) templateKey() string {
	return fmt.Sprintf("runner/%x.yaml", sha256.Sum256(r.template))
}

// The paths of the builds from the root.
const (
	functionsFolder = "bin/functions"
	imageFolder     = "bin/images/runner"
	templateFile    = "bin/infra/fairlead-runner.yaml"
)

// build builds the functions and the images.
func (d *Deployment) build(ctx context.Context, s state) (out images, err error) {
	d.say("\nBuilding the functions")
	if _, err := d.Run(ctx, Command{Args: []string{"go", "run", "./tools/functions", "-out", functionsFolder}, Folder: d.Root}); err != nil {
		return out, err
	}
	d.say("Building the runner's image, for arm64; its OpenTofu takes some minutes the first time")
	if out.runner, err = d.image(ctx); err != nil {
		return out, err
	}
	if !d.NoShell {
		d.say("Building the runner's image with a shell and git, for arm64; it downloads 30 MB of Debian's packages the first time")
		if out.shell, err = d.image(ctx, "-shell"); err != nil {
			return out, fmt.Errorf("build the runner's image with a shell: %w\nWITH_SHELL=0 leaves this image out", err)
		}
	}
	if !s.direct {
		return out, nil
	}
	d.say("Building the image of direct launch, for arm64")
	out.direct, err = d.image(ctx, "-direct")
	return out, err
}

// image builds an image and returns its digest.
func (d *Deployment) image(ctx context.Context, flags ...string) (string, error) {
	args := append([]string{"go", "run", "./infra/images/runner", "-arch", "arm64", "-version", d.Version, "-out", imageFolder}, flags...)
	digest, err := d.Run(ctx, Command{Args: args, Folder: d.Root})
	return strings.TrimSpace(string(digest)), err
}

// Context returns the arguments with which the CDK synthesizes the stack of a control plane that was
// created earlier, from the source in the folder root. A plain "cdk deploy" has none of them.
func Context(root, stage string) []string {
	return []string{"-c", "stage=" + stage, "-c", "functions=" + filepath.Join(root, functionsFolder)}
}

// synthesize writes the stacks' templates. They do not depend on the release: the
// parameters name its image and its template.
func (d *Deployment) synthesize(ctx context.Context, s state, images images) (release, error) {
	d.say("Synthesizing the stacks")
	context := Context(d.Root, d.Stage)
	if !created(s.status) {
		context = append(context, "-c", "deletionProtection=false")
	}
	if s.switches {
		context = append(context, "-c", "canary=false")
	}
	if _, err := d.cdk(ctx, append([]string{"synth", d.stack(), "--quiet", "--output", d.assembly()}, context...)...); err != nil {
		return release{}, err
	}
	template, err := os.ReadFile(filepath.Join(d.Root, templateFile))
	return release{images: images, template: template}, err
}

// publish pushes the image to the stack's registry and uploads the template to its
// bucket, unless they exist already.
func (d *Deployment) publish(ctx context.Context, outputs map[string]string, r release) error {
	if err := d.push(ctx, outputs["RunnerRepository"], r.runner, "layout"); err != nil {
		return fmt.Errorf("push the runner's image: %w", err)
	}
	if r.direct != "" {
		if err := d.push(ctx, outputs["RunnerRepository"], r.direct, "layout-direct"); err != nil {
			return fmt.Errorf("push the image of direct launch: %w", err)
		}
	}
	if r.shell != "" {
		if err := d.push(ctx, outputs["RunnerRepository"], r.shell, "layout-shell"); err != nil {
			return fmt.Errorf("push the runner's image with a shell: %w", err)
		}
	}
	if err := d.upload(ctx, outputs["TemplateBucket"], r); err != nil {
		return fmt.Errorf("publish the template: %w", err)
	}
	return nil
}

// push pushes the image of a layout, a folder of imageFolder, with its digest as the tag. ECR deletes images without a tag
// after some time. A tag with the version could not be pushed twice.
func (d *Deployment) push(ctx context.Context, repository, digest, folder string) error {
	repo, err := name.NewRepository(repository)
	if err != nil {
		return err
	}
	options, err := d.registry(ctx)
	if err != nil {
		return err
	}
	tag := repo.Tag(strings.TrimPrefix(digest, "sha256:"))
	var refused *transport.Error
	switch found, err := remote.Head(tag, options...); {
	case err == nil && found.Digest.String() == digest:
		return nil
	case err == nil:
		return fmt.Errorf("the registry has the digest %[2]s under the tag %[1]s", tag, found.Digest)
	case !errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound:
		return err
	}
	d.say("Pushing an image to %s", repo)
	index, err := layout.ImageIndexFromPath(filepath.Join(d.Root, imageFolder, folder))
	if err != nil {
		return err
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		return err
	}
	image, err := index.Image(hash)
	if err != nil {
		return err
	}
	return remote.Write(tag, image, options...)
}

// registry logs in to the account's registry and returns the options of a client.
func (d *Deployment) registry(ctx context.Context) ([]remote.Option, error) {
	out, err := ecr.NewFromConfig(d.Config).GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if err != nil {
		return nil, err
	}
	if len(out.AuthorizationData) == 0 {
		return nil, errors.New("ECR returned no login")
	}
	login, err := base64.StdEncoding.DecodeString(aws.ToString(out.AuthorizationData[0].AuthorizationToken))
	if err != nil {
		return nil, errors.New("ECR returned a login that is not base64")
	}
	user, password, _ := strings.Cut(string(login), ":")
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuth(&authn.Basic{Username: user, Password: password})}
	if d.Remote != nil {
		options = append(options, remote.WithTransport(d.Remote))
	}
	return options, nil
}

// upload uploads the template. The name is a hash of the content, so an existing
// object is never replaced.
func (d *Deployment) upload(ctx context.Context, bucket string, r release) error {
	client, key := s3.NewFromConfig(d.Config), r.templateKey()
	_, err := client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &bucket, Key: &key})
	var absent *s3types.NotFound
	if err == nil || !errors.As(err, &absent) {
		return err
	}
	d.say("Publishing the template as s3://%s/%s", bucket, key)
	_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(r.template), ContentType: aws.String("application/yaml"), IfNoneMatch: aws.String("*")})
	var raced smithy.APIError
	if errors.As(err, &raced) && raced.ErrorCode() == "PreconditionFailed" {
		return nil // another process has published the same template
	}
	return err
}
