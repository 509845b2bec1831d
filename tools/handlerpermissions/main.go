// Command handlerpermissions makes the table of pkg/sessionpolicy: which services of AWS a change of a type of resources calls.
//
//	go run ./tools/handlerpermissions -schemas CLONE -provider FOLDER
//
// CLONE is a git repository of hashicorp/terraform-provider-awscc, which has AWS's schemas of the resource types of CloudFormation. Each
// schema lists the actions that its handlers need. FOLDER is the source of the provider hashicorp/aws, which lists its types of resources
// and data sources by service; tools/awsprovider pins one. Only facts enter the table: names of types and of actions. reviewed.txt has what
// a person decided.
//
// A type of hashicorp/aws has the CloudFormation type with the same name in the namespace of its service. If there is none, it has the
// one of reviewed.txt, or that of the type whose name its own continues, as aws_s3_bucket_versioning continues aws_s3_bucket. Otherwise
// the table does not have it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "handlerpermissions:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("handlerpermissions", flag.ExitOnError)
	schemas := flags.String("schemas", "", "a git repository of hashicorp/terraform-provider-awscc")
	source := flags.String("provider", "", "the folder with the source of hashicorp/aws")
	to := flags.String("to", "pkg/sessionpolicy/services.txt", "the table")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *schemas == "" || *source == "" {
		return errors.New("-schemas and -provider must be given")
	}
	r, err := readReviewed(reviewedText)
	if err != nil {
		return err
	}
	c, err := readSchemas(ctx, *schemas)
	if err != nil {
		return err
	}
	p, err := readProvider(*source)
	if err != nil {
		return err
	}
	t, err := tableOf(c, p, r)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d of %d types of resources of hashicorp/aws %s are mapped; not mapped: %s\n", p.resources()-len(t.unmapped), p.resources(), p.version, strings.Join(t.unmapped, " "))
	return os.WriteFile(*to, t.text(c, p), 0o644)
}
