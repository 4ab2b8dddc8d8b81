/* A publisher of paho C (MQTTAsync) that keeps a window of messages under way: see
   publisher_program.py. Arguments: host, port, client identifier, topic, version, QoS, window. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "MQTTAsync.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int under_way, is_ending, is_connected;

static void finish(const char *outcome, long own, int code) {
    pthread_mutex_lock(&lock);
    under_way -= 1;
    if (code) printf("%s %ld code %d\n", outcome, own, code);
    else printf("%s %ld\n", outcome, own);
    fflush(stdout);
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void on_success(void *context, MQTTAsync_successData *data) { finish("ok", (long)context, 0); }
static void on_success5(void *context, MQTTAsync_successData5 *data) { finish("ok", (long)context, 0); }
static void on_failure(void *context, MQTTAsync_failureData *data) {
    finish("failed", (long)context, data ? data->code : -1);
}
static void on_failure5(void *context, MQTTAsync_failureData5 *data) {
    finish("failed", (long)context, data ? (data->reasonCode ? data->reasonCode : data->code) : -1);
}

static void on_connected(void *context, char *cause) {
    pthread_mutex_lock(&lock);
    is_connected = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void *wait_for_the_end(void *context) {
    char byte;
    while (read(0, &byte, 1) > 0) {}
    pthread_mutex_lock(&lock);
    is_ending = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(int argc, char **argv) {
    int version = atoi(argv[5]), qos = atoi(argv[6]), window = atoi(argv[7]);
    char url[256], payload[32];
    pthread_t thread;
    MQTTAsync client;
    MQTTAsync_createOptions create = MQTTAsync_createOptions_initializer;
    MQTTAsync_connectOptions connect = MQTTAsync_connectOptions_initializer;
    MQTTAsync_connectOptions connect5 = MQTTAsync_connectOptions_initializer5;
    MQTTProperty expiry;

    snprintf(url, sizeof url, "tcp://%s:%s", argv[1], argv[2]);
    create.sendWhileDisconnected = 1;
    create.maxBufferedMessages = 2 * window;
    create.MQTTVersion = version == 5 ? MQTTVERSION_5 : version;
    if (MQTTAsync_createWithOptions(&client, url, argv[3], MQTTCLIENT_PERSISTENCE_NONE, NULL, &create))
        return 2;
    MQTTAsync_setConnected(client, NULL, on_connected);
    if (version == 5) {
        MQTTProperties properties = MQTTProperties_initializer;
        connect = connect5;
        connect.cleanstart = 0;
        expiry.identifier = MQTTPROPERTY_CODE_SESSION_EXPIRY_INTERVAL;
        expiry.value.integer4 = 3600;
        MQTTProperties_add(&properties, &expiry);
        connect.connectProperties = malloc(sizeof properties);
        *connect.connectProperties = properties;
    } else {
        connect.cleansession = 0;
        connect.MQTTVersion = version;
    }
    connect.keepAliveInterval = 60;
    connect.automaticReconnect = 1;
    connect.minRetryInterval = 1;
    connect.maxRetryInterval = 1;
    connect.maxInflight = window;
    if (MQTTAsync_connect(client, &connect)) return 3;
    pthread_create(&thread, NULL, wait_for_the_end, NULL);

    pthread_mutex_lock(&lock);
    while (!is_connected) pthread_cond_wait(&changed, &lock);
    for (long number = 0;; number++) {
        while (under_way >= window && !is_ending) pthread_cond_wait(&changed, &lock);
        if (is_ending) break;
        under_way += 1;
        pthread_mutex_unlock(&lock);
        MQTTAsync_responseOptions response = MQTTAsync_responseOptions_initializer;
        if (version == 5) {
            response.onSuccess5 = on_success5;
            response.onFailure5 = on_failure5;
        } else {
            response.onSuccess = on_success;
            response.onFailure = on_failure;
        }
        response.context = (void *)number;
        snprintf(payload, sizeof payload, "%ld", number);
        int code = MQTTAsync_send(client, argv[4], strlen(payload), payload, qos, 0, &response);
        if (code) {
            finish("unsent", number, code);
            usleep(100000);
        }
        pthread_mutex_lock(&lock);
    }
    while (under_way > 0) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return 0;
}
