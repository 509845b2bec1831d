// Command archive is a Terraform provider with the data source archive_file. Like the
// data source of hashicorp/archive, it writes a ZIP when the tool reads it, that is, at
// the plan. The original provider cannot be built from the module proxy.
package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

func main() {
	err := providerserver.Serve(context.Background(), func() provider.Provider { return archive{} },
		providerserver.ServeOpts{Address: "registry.terraform.io/hashicorp/archive"})
	if err != nil {
		log.Fatal(err)
	}
}

type archive struct{}

func (archive) Metadata(_ context.Context, _ provider.MetadataRequest, res *provider.MetadataResponse) {
	res.TypeName = "archive"
}

func (archive) Schema(context.Context, provider.SchemaRequest, *provider.SchemaResponse) {}

func (archive) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {}

func (archive) Resources(context.Context) []func() resource.Resource { return nil }

func (archive) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{func() datasource.DataSource { return file{} }}
}

type file struct{}

type arguments struct {
	SourceFile types.String `tfsdk:"source_file"`
	OutputPath types.String `tfsdk:"output_path"`
	SHA256     types.String `tfsdk:"output_sha256"`
}

func (file) Metadata(_ context.Context, _ datasource.MetadataRequest, res *datasource.MetadataResponse) {
	res.TypeName = "archive_file"
}

func (file) Schema(_ context.Context, _ datasource.SchemaRequest, res *datasource.SchemaResponse) {
	res.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"source_file":   schema.StringAttribute{Required: true},
		"output_path":   schema.StringAttribute{Required: true},
		"output_sha256": schema.StringAttribute{Computed: true},
	}}
}

func (file) Read(ctx context.Context, req datasource.ReadRequest, res *datasource.ReadResponse) {
	var a arguments
	if res.Diagnostics.Append(req.Config.Get(ctx, &a)...); res.Diagnostics.HasError() {
		return
	}
	if err := write(a.SourceFile.ValueString(), a.OutputPath.ValueString()); err != nil {
		res.Diagnostics.AddError("The archive cannot be written", err.Error())
		return
	}
	b, err := os.ReadFile(a.OutputPath.ValueString())
	if err != nil {
		res.Diagnostics.AddError("The archive cannot be read", err.Error())
		return
	}
	sum := sha256.Sum256(b)
	a.SHA256 = types.StringValue(hex.EncodeToString(sum[:]))
	res.Diagnostics.Append(res.State.Set(ctx, a)...)
}

func write(source, output string) error {
	b, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	f, err := os.Create(output)
	if err != nil {
		return err
	}
	w := zip.NewWriter(f)
	entry, err := w.Create("index.js")
	if err == nil {
		_, err = entry.Write(b)
	}
	return errors.Join(err, w.Close(), f.Close())
}
