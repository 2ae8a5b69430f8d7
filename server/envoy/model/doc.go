// Package model has the common types of Envoy's catalog: profiles of clients, views of hosts, and findings in objects.
package model
