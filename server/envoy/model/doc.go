// Package model has what the other packages of Envoy's catalog speak of: profiles of clients, views of hosts, and findings in objects.
package model
