package config

// OIDC configures where a runner gets the token that proves its identity. It is read
// only if FAIRLEAD_IDENTITY is oidc. The platform sets the variables that do not
// start with FAIRLEAD_; their names are the platform's.
type OIDC struct {
	Source   string `env:"FAIRLEAD_OIDC_SOURCE" envDefault:"file" doc:"where the token comes from: file, github, gcp or azure"`
	File     string `env:"FAIRLEAD_OIDC_TOKEN_FILE" doc:"for source file: the file with the token, such as a projected token of a Kubernetes service account; read for each session"`
	Audience string `env:"FAIRLEAD_OIDC_AUDIENCE" doc:"for sources github, gcp and azure: the audience to request, which is the audience of the service account"`

	RequestURL   string `env:"ACTIONS_ID_TOKEN_REQUEST_URL" doc:"URL at which a job of GitHub Actions, or of a compatible CI, requests its token; set by the CI"`
	RequestToken string `env:"ACTIONS_ID_TOKEN_REQUEST_TOKEN" doc:"bearer token of that request; set by the CI"`

	GCPHost string `env:"GCE_METADATA_HOST" envDefault:"metadata.google.internal" doc:"host of Google Cloud's metadata server"`

	AzureHost     string `env:"AZURE_POD_IDENTITY_AUTHORITY_HOST" envDefault:"http://169.254.169.254" doc:"URL of Azure's instance metadata service"`
	AzureClientID string `env:"AZURE_CLIENT_ID" doc:"client ID of a user-assigned managed identity; default: the system-assigned one"`
}
