// Package ecr is for an install whose registry is Amazon ECR: it logs in with the role of the operation, and makes the repository of
// a component.
package ecr

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"
	"github.com/aws/smithy-go"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// timeout bounds one request with its repetitions.
const timeout = 30 * time.Second

// Registry is the registry of an account in a region. Safe for concurrent use.
type Registry struct{ client *ecr.Client }

// Open returns the registry for the credentials of the environment. It sends no request.
func Open(ctx context.Context, region string) (*Registry, error) {
	var with []func(*awsconfig.LoadOptions) error
	if region != "" {
		with = append(with, awsconfig.WithRegion(region))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, with...)
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonEnvInvalid, Err: err, Message: fmt.Sprintf("the environment has no usable configuration of AWS: %v", err)}
	}
	return &Registry{ecr.NewFromConfig(cfg)}, nil
}

// Login returns a user name and a password with the permissions of the role. They are valid for as long as the role's session, at
// most 12 hours.
func (r *Registry) Login(ctx context.Context) (user, password string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := r.client.GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if err != nil {
		return "", "", failure(err, "the login to ECR", "ecr:GetAuthorizationToken")
	}
	if len(out.AuthorizationData) != 1 {
		return "", "", plugin.Errorf(fairlead.ReasonRegistryUnreachable, "ECR returned %d logins, want 1", len(out.AuthorizationData))
	}
	pair, err := base64.StdEncoding.DecodeString(aws.ToString(out.AuthorizationData[0].AuthorizationToken))
	user, password, ok := strings.Cut(string(pair), ":")
	if err != nil || !ok {
		return "", "", plugin.Errorf(fairlead.ReasonRegistryUnreachable, "the token of ECR is not a user name and a password")
	}
	return user, password, nil
}

// signatures are the tags that are not immutable: cosign moves the tag of an image's signatures when a second person signs.
const signatures = "sha256-*"

// Make makes the repository unless it exists. Its other tags are immutable: those that the engine writes have the digest in their name.
func (r *Registry) Make(ctx context.Context, repository, install string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := r.client.CreateRepository(ctx, &ecr.CreateRepositoryInput{RepositoryName: &repository, ImageTagMutability: types.ImageTagMutabilityImmutableWithExclusion,
		ImageTagMutabilityExclusionFilters: []types.ImageTagMutabilityExclusionFilter{{Filter: aws.String(signatures), FilterType: types.ImageTagMutabilityExclusionFilterTypeWildcard}},
		Tags:                               []types.Tag{{Key: aws.String("fairlead_install"), Value: &install}}})
	if _, there := errors.AsType[*types.RepositoryAlreadyExistsException](err); err == nil || there {
		return nil
	}
	return failure(err, "creating the repository "+repository, "ecr:CreateRepository")
}

func failure(err error, what, action string) error {
	if api, ok := errors.AsType[smithy.APIError](err); ok && strings.Contains(api.ErrorCode(), "AccessDenied") {
		return &plugin.Error{Reason: fairlead.ReasonRegistryForbidden, Err: err, Message: fmt.Sprintf("%s failed: the role of the job may not %s. Grant it this action", what, action)}
	}
	return &plugin.Error{Reason: fairlead.ReasonRegistryUnreachable, Err: err, Message: fmt.Sprintf("%s failed: %v. Plan again", what, err)}
}
