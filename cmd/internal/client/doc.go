// Package client has the clients of the commands: XDS for servers of MCP over xDS or of Envoy's resources, and Admin
// for the admin server of a tributary. WriteBootstrap writes configuration for other clients.
package client
