// Package awsstore reads a customer's secrets from SSM and from Secrets Manager.
package awsstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// Read returns a secret with all its fields. It uses the credentials that the process finds, in the region of the reference; the
// parameter region is for references without a region, and "" means the region of the process. Errors contain no part of the
// value.
func Read(ctx context.Context, region string, ref runnerspec.Reference) (string, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return "", fmt.Errorf("find the credentials of this process: %w", err)
	}
	cfg.Region = cmp.Or(ref.Region(), region, cfg.Region)
	if ref.Store == runnerspec.StoreSSM {
		out, err := ssm.NewFromConfig(cfg).GetParameter(ctx, &ssm.GetParameterInput{Name: &ref.Name, WithDecryption: aws.Bool(true)})
		if err != nil {
			return "", answer(err)
		}
		if out.Parameter == nil {
			return "", errors.New("the response of SSM has no parameter")
		}
		return aws.ToString(out.Parameter.Value), nil
	}
	out, err := secretsmanager.NewFromConfig(cfg).GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &ref.Name})
	if err != nil {
		return "", answer(err)
	}
	if out.SecretString == nil {
		return "", errors.New("it is binary, and a tool needs a text")
	}
	return *out.SecretString, nil
}

// answer shortens the error of AWS to its code and message.
func answer(err error) error {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return fmt.Errorf("%s: %s", e.ErrorCode(), e.ErrorMessage())
	}
	return err
}
