// Shared by RBMQ's examples: the login that the environment describes.
#pragma once

#include <rocketbufs.hpp>

#include <cstdlib>

// A token, or a user and a password, or nothing, for a broker that lets everybody in.
inline rbmq_login login_of_environment() {
    rbmq_login login{};
    login.size = sizeof login;
    login.token = std::getenv("RBMQ_TOKEN");
    login.user = std::getenv("RBMQ_USER");
    login.password = std::getenv("RBMQ_PASSWORD");
    return login;
}
