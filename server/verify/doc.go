// Package verify compares the served configuration with the objects that an istiod stored or the resources that an
// Envoy uses. An ACK does not prove either: istiod acknowledges objects and then drops them, and a proxy in between may
// hold updates back.
package verify
