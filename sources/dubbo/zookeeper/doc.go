// Package zookeeper reads the registrations of Dubbo's providers in ZooKeeper.
//
// conn.go is the connection, answers.go checks answers before the library reads them, address.go parses addresses,
// loop.go follows one node, and zookeeper.go reads the registry's nodes.
package zookeeper
